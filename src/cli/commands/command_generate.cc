#include <fmt/format.h>

#include <filesystem>

#include "cli/answer_options.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/text_file.h"
#include "profile/drift.h"
#include "profile/profile.h"
#include "runtime/requests.h"

namespace shale {
namespace {

struct GenerateOptions {
  ServingOptions serving;
  AnswerOptions answer;
  OutputOptions output;
  std::string context, prompt, system;
  std::optional<Method> method;
  double keep = 1;
  bool exact = false, no_cache = false;
};

constexpr char kGenerateExamples[] =
    "Examples:\n"
    "  shale generate --context LICENSE --prompt \"May I sell copies?\"\n"
    "  shale generate --context LICENSE --prompt \"Who holds the copyright?\"     the context is loaded now\n"
    "  shale generate --context LICENSE --prompt \"May I?\" --method snapkv+int8 --keep 0.5 --json\n"
    "  echo \"Write a haiku.\" | shale generate --prompt -";

Status run_generate(const GenerateOptions& options) {
  if (options.context == "-" && options.prompt == "-") {
    return fail(ErrorCode::kInvalidArgument,
                "--context and --prompt cannot both be standard input; give one of them as a file or text");
  }
  std::string context, prompt = options.prompt;
  if (!options.context.empty()) {
    SHALE_ASSIGN(context, read_text(options.context));
  }
  if (prompt == "-") {
    SHALE_ASSIGN(prompt, read_text("-"));
  }
  if (prompt.empty())
    return fail(ErrorCode::kInvalidArgument, "the prompt is empty; write --prompt TEXT, or - for standard input");

  if (options.method && context.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--method compresses a context, and there is none: give one by --context");
  }

  ServingOptions serving_options = options.serving;
  serving_options.store = !options.no_cache;
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, options.output));
  SHALE_ASSIGN(PromptParts parts, make_prompt(serving->tokenizer(), context, prompt, options.system));
  if (!parts.templated) print_note("shale: this model has no chat template; the prompt is plain text");

  const bool stored_context = !context.empty() && !options.no_cache;
  if (stored_context) log_question(serving->cache(), parts.context, prompt);
  Request request;
  const std::string label = std::filesystem::path(options.context).filename();
  if (!parts.context.empty()) request.spans.push_back({std::move(parts.context), stored_context, label});
  request.spans.push_back({std::move(parts.question), false, {}});
  options.answer.apply(request);
  request.policy = {.exact = options.exact, .method = options.method, .keep = options.keep};
  request.use_cache = !options.no_cache;
  if (!options.output.json) request.on_text = print_piece;

  const Result<Response> response = run_request(serving->engine(), std::move(request), options.output);
  const std::uint64_t damaged = serving->cache().store().stats().damaged_chunks;
  if (response && options.output.json) {
    Json json = to_json(*response, serving->model());
    json["damaged_chunks"] = damaged;
    print_json(json);
  } else if (response) {
    fmt::print("\n");
    print_note(summary(*response));
  }
  if (damaged) print_note(fmt::format("shale: {} stored chunks were damaged and not used", damaged));
  const Status stored = serving->finish_background(options.output);  // of a request that failed halfway, too
  return response ? stored : std::unexpected(response.error());
}

}  // namespace

void add_generate(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "generate", "Answer a prompt, about a document if one is given", run_generate);
  command.footer(kGenerateExamples);
  command.add_option("--prompt", options->prompt, "The question or request; - reads it from standard input")
      .required()
      .type_name("TEXT");
  command
      .add_option("--context", options->context,
                  "UTF-8 text that the prompt is about; its KV cache is kept for next time")
      .type_name("FILE");
  command.add_option("--system", options->system, "System message instead of the model's own")
      .envname("SHALE_SYSTEM")
      .type_name("TEXT");

  const char* group = "Cache use";
  Option method = add_method(command, "--method", options->method,
                             "Answer from the context compressed this way: keydiff, kivi4, snapkv+int8, …")
                      .group(group);
  command.add_option("--keep", options->keep, "Share of the context's tokens kept: 0.1, 0.25, 0.5, 0.75 or 1")
      .check(check_keep)
      .needs(method)
      .type_name("SHARE")
      .capture_default_str()
      .group(group);
  Option exact =
      command.add_flag("--exact", options->exact, "Use only bit-exact stored caches").group(group).excludes(method);
  command.add_flag("--no-cache", options->no_cache, "Compute everything; look nothing up and store nothing")
      .group(group)
      .excludes(method)
      .excludes(exact);
  add_answer_options(command, options->answer);
  add_serving_options(command, options->serving);
  add_kv_cache_dtype_option(command, options->serving.model);
  add_output_options(command, options->output);
}

}  // namespace shale
