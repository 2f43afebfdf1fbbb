#include <algorithm>

#include "cache/planner_choice.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/interrupt.h"
#include "demo/demo.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct DemoOptions {
  ModelChoice model;
  OutputOptions output;
  DemoWorkload workload;
  std::vector<std::string> documents;
  std::uint32_t document_tokens = 1200;
  std::optional<Throttle> disk, remote;
  std::vector<std::string> planners = {"prefill", "lru", "fixed:kivi4", "impress", "shale"};
  CacheOptions cache;

  // Few enough to be measured on a dozen documents in a minute or two.
  DemoOptions() { cache.methods = {"int8", "kivi4", "keydiff+int8", "snapkv+int8", "snapkv+kivi4"}; }
};

constexpr char kDemoExamples[] =
    "Every planner answers the same requests, live, from a cache of its own in a temporary folder, which is removed\n"
    "afterwards. Disk and remote emulate slower hardware, so that what planners weigh can be seen also on a fast\n"
    "machine.\n"
    "\n"
    "Examples:\n"
    "  shale demo\n"
    "  shale demo --planner lfu,fixed:snapkv+int8@0.5,shale\n"
    "  shale demo --documents report.txt notes.md --requests 30\n"
    "  shale demo --throttle-disk sata-ssd --throttle-remote nfs-1g --json";

constexpr std::uint32_t kPromptSlack = 512;  // template, question and answer beside a document

Status run_command_demo(const DemoOptions& options) {
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  {
    Progress progress(options.output, "loading " + options.model.model);
    SHALE_ASSIGN(tokenizer, Tokenizer::load(path));
    SHALE_ASSIGN(model, open_model(options.model));
  }
  std::vector<DemoDocument> documents;
  if (options.documents.empty()) {
    SHALE_ASSIGN(documents, sample_documents(*tokenizer, options.document_tokens));
  } else {
    SHALE_ASSIGN(documents, user_documents(*tokenizer, options.documents, options.document_tokens));
  }
  std::uint64_t tokens = 0;
  for (const DemoDocument& document : documents) tokens += document.tokens;

  DemoHardware hardware;
  SHALE_ASSIGN(hardware.disk, options.disk ? Result<Throttle>(*options.disk) : parse_throttle("hdd"));
  SHALE_ASSIGN(hardware.remote, options.remote ? Result<Throttle>(*options.remote) : parse_throttle("s3-far"));
  const auto open = [&](const std::string& planner) {
    CacheOptions cache = options.cache;
    cache.planner = planner;
    return DemoStack::open(*model, *tokenizer, std::move(cache), hardware, tokens,
                           options.document_tokens + kPromptSlack);
  };
  const auto report = options.output.json ? make_json_report() : make_text_report();
  return run_demo(open, options.planners, std::move(documents), options.workload, *report, options.output);
}

}  // namespace

void add_demo(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "demo", "Show the main job on real documents, measured, in a few minutes", run_command_demo);
  command.footer(kDemoExamples);
  command
      .add_option(
          "--documents", options->documents,
          "UTF-8 text files; the model writes the questions (default: eight licence texts of this machine, code, a "
          "dialogue, records and a text in German)")
      .type_name("FILE");
  command.add_option("--document-tokens", options->document_tokens, "Longer documents are cut at a paragraph")
      .range(64, 8192)
      .type_name("N")
      .capture_default_str();
  command.add_option("--planner", options->planners, "The planners to show, one after the other: " + planner_forms())
      .check(known_planner())
      .type_name("PLANNER,...")
      .delimiter(',')
      .capture_default_str();
  command.add_option("--requests", options->workload.requests, "Requests to answer")
      .range(1, 100000)
      .type_name("N")
      .capture_default_str();
  command.add_option("--seed", options->workload.seed, "Of the workload").type_name("N").capture_default_str();
  add_utility_options(command, options->cache);
  add_throttle(command, "--throttle-disk", options->disk, "Disk to emulate (default: hdd)");
  add_throttle(command, "--throttle-remote", options->remote, "Remote to emulate (default: s3-far)");
  add_model_options(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
