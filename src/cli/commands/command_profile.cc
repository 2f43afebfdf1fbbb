#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/units.h"
#include "core/utf8.h"
#include "profile/drift.h"
#include "profile/profile.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct ProfileCommandOptions {
  ServingOptions serving;
  OutputOptions output;
  ProfileOptions profile;
  std::string context, questions_file, held_out_file;
  std::uint32_t context_tokens = 0;
  std::vector<std::string> questions;
  bool if_drifted = false;
  DriftOptions drift;
};

constexpr char kProfileExamples[] =
    "Each method and keep is applied to the context's cache; its answers are compared with the full cache's. The\n"
    "rows are kept in the metadata store, where the planner reads them.\n"
    "\n"
    "Examples:\n"
    "  shale profile --context LICENSE --question \"May I sell copies?\"\n"
    "  shale profile --context LICENSE --if-drifted     only where the questions asked since have moved away\n"
    "  shale profile --context LICENSE --profile-methods int8,snapkv+int8 --keeps 1,0.5 --json";

// Of the text so many tokens, from the first; 0: all.
std::string beginning_of(std::string text, std::uint32_t tokens_max, const Tokenizer& tokenizer) {
  if (tokens_max == 0) return text;
  const std::vector<Token> tokens = tokenizer.tokenize(text, false);
  if (tokens.size() <= tokens_max) return text;
  text = tokenizer.text(std::span(tokens).first(tokens_max));
  text.resize(std::min(text.size(), find_invalid_utf8(text)));  // a character that the cut went through
  return text;
}

// One question a line; none of no file.
Result<std::vector<std::string>> questions_in(const std::string& file) {
  std::vector<std::string> questions;
  if (file.empty()) return questions;
  SHALE_ASSIGN(const std::string text, read_text(file));
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    if (end > start) questions.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return questions;
}

void print_profile(const ContextProfile& profile, std::string_view metric) {
  const bool by_agreement = metric == kAgreement,
             held_out = !profile.rows.empty() && !profile.rows.front().held_out.empty();
  const auto line = [&](std::string_view method, std::string_view keep, std::string_view quality,
                        std::string_view agreement, std::string_view of_held_out, std::string_view kl,
                        std::string_view size) {
    fmt::print("{:<28}  {:>4}  ", method, keep);
    if (!by_agreement) fmt::print("{:>9}  ", quality);
    fmt::print("{:>9}  ", agreement);
    if (held_out) fmt::print("{:>8}  ", of_held_out);
    fmt::print("{:>8}  {:>10}\n", kl, size);
  };
  std::string heading(metric);
  std::ranges::transform(heading, heading.begin(), [](unsigned char c) { return std::toupper(c); });
  line("METHOD", "KEEP", heading, "AGREEMENT", "HELD OUT", "KL", "SIZE");
  for (const ProfileRow& row : profile.rows) {
    double of_held_out = 0;
    for (const Divergence& one : row.held_out) of_held_out += one.agreement / static_cast<double>(row.held_out.size());
    line(row.method.text(), fmt::format("{}", row.keep), fmt::format("{:.3f}", row.quality),
         fmt::format("{:.3f}", row.agreement), fmt::format("{:.3f}", of_held_out), fmt::format("{:.4f}", row.kl),
         format_bytes(row.bytes));
  }
  fmt::print("\n{} questions ({} written by the model), {}:\n", profile.questions.size(), profile.questions_by_model,
             format_duration(profile.seconds));
  for (const std::string& question : profile.questions) fmt::print("  {}\n", question);
}

Json profile_json(const ContextProfile& profile, std::string_view metric, std::uint64_t kv_bytes_per_token) {
  Json rows = Json::array();
  for (const ProfileRow& row : profile.rows) {
    rows.push_back({{"method", row.method.text()},
                    {"keep", row.keep},
                    {"quality", row.quality},
                    {"agreement", row.agreement},
                    {"kl", row.kl},
                    {"questions", row.questions},
                    {"decode_seconds", row.decode_s},
                    {"bytes", row.bytes}});
    if (row.held_out.empty()) continue;
    Json& held_out = rows.back()["held_out_agreement"] = Json::array();
    for (const Divergence& one : row.held_out) held_out.push_back(one.agreement);
  }
  return {{"run", profile.run.hex()},
          {"tokens", profile.tokens},
          {"kind", name_of(profile.kind)},
          {"quality_metric", metric},
          {"full_bytes", profile.tokens * kv_bytes_per_token},
          {"questions", profile.questions},
          {"questions_by_model", profile.questions_by_model},
          {"rows", std::move(rows)},
          {"seconds", profile.seconds}};
}

void report_drift(const DriftCheck& check, std::string_view metric, const OutputOptions& output) {
  if (output.json) {
    return print_json({{"questions", check.questions},
                       {"configurations", check.configurations},
                       {"quality_metric", metric},
                       {"profiled", check.profiled},
                       {"observed", check.observed},
                       {"drifted", check.drifted},
                       {"seconds", check.seconds}});
  }
  fmt::print("{} configurations on the last {} questions: {} {:.3f}, profiled as {:.3f}; {} ({})\n",
             check.configurations, check.questions.size(), metric, check.observed, check.profiled,
             check.drifted ? "profiling again" : "the profile holds", format_duration(check.seconds));
}

Status run_profile(const ProfileCommandOptions& options) {
  SHALE_ASSIGN(std::string context, read_text(options.context));
  SHALE_ASSIGN(std::vector<std::string> questions, questions_in(options.questions_file));
  questions.insert(questions.end(), options.questions.begin(), options.questions.end());
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, options.output));
  context = beginning_of(std::move(context), options.context_tokens, serving->tokenizer());

  if (options.if_drifted) {
    const auto check = check_drift(serving->engine(), context, options.drift);
    if (!check && check.error().code == ErrorCode::kNotFound) {
      print_note("shale: " + check.error().message + "; nothing to check");
      return {};
    }
    if (!check) return std::unexpected(check.error());
    report_drift(*check, serving->cache().metric(), options.output);
    if (!check->drifted) return serving->finish_background(options.output);
    questions = check->questions;
  }
  ProfileOptions profile_options = options.profile;
  profile_options.label = std::filesystem::path(options.context).filename();
  SHALE_ASSIGN(profile_options.held_out, questions_in(options.held_out_file));
  auto progress = std::make_optional<Progress>(options.output, "profiling");
  auto profile = profile_context(serving->engine(), context, std::move(questions), profile_options,
                                 [&](std::size_t done, std::size_t total) { (*progress)(done, total); });
  progress.reset();
  if (!profile) return std::unexpected(std::move(profile).error());
  const std::string_view metric = serving->cache().metric();
  if (options.output.json) {
    print_json(profile_json(*profile, metric, serving->engine().model().page_shape().token_bytes()));
  } else {
    print_profile(*profile, metric);
  }
  return serving->finish_background(options.output);
}

void add_measure_options(Command command, ProfileOptions& options) {
  const char* group = "Profile";
  command.add_option("--profile-methods", options.methods, "Methods to measure (default: the planner's --methods)")
      .check(check_method)
      .delimiter(',')
      .type_name("METHOD,...")
      .group(group);
  command.add_option("--keeps", options.keeps, "Keeps to measure")
      .check(check_keep)
      .delimiter(',')
      .type_name("SHARE,...")
      .default_str("0.75,0.5,0.25,0.1")
      .group(group);
  command.add_option("--answer-tokens", options.answer_tokens, "Tokens of each answer that is compared")
      .range(1, 4096)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--questions-max", options.questions_max, "Questions asked at most")
      .range(1, 1000)
      .type_name("N")
      .capture_default_str()
      .group(group);
}

}  // namespace

void add_profile(Command parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "profile",
                                        "Measure what compressing one document's cache costs in quality", run_profile);
  command.footer(kProfileExamples);
  command.add_option("--context", options->context, "The document, UTF-8 text").required().type_name("FILE");
  command.add_option("--context-tokens", options->context_tokens, "Tokens of it, from the first; 0: all")
      .type_name("N")
      .capture_default_str();
  Option file = command
                    .add_option("--questions", options->questions_file,
                                "Questions to ask, one a line (default: the model writes some)")
                    .type_name("FILE");
  Option question = command.add_option("--question", options->questions, "A question to ask; may be given again")
                        .type_name("TEXT")
                        .allow_extra_args(false)
                        .excludes(file);
  command
      .add_option("--held-out", options->held_out_file,
                  "Questions to ask, too, one a line, and to keep out of the profile: how well it predicts them")
      .type_name("FILE");
  const char* drift = "Drift";
  Option if_drifted =
      command
          .add_flag("--if-drifted", options->if_drifted,
                    "Check a few configurations on the questions asked last; profile again, on them, where it fell")
          .excludes(file)
          .excludes(question)
          .group(drift);
  command
      .add_option("--drift-threshold", options->drift.threshold,
                  "How far quality, in --quality-metric, may fall below the profile")
      .range(0.0, 1.0)
      .needs(if_drifted)
      .type_name("SHARE")
      .capture_default_str()
      .group(drift);
  command.add_option("--drift-configurations", options->drift.configurations, "Configurations that a check asks")
      .range(1, 1000)
      .needs(if_drifted)
      .type_name("N")
      .capture_default_str()
      .group(drift);

  add_measure_options(command, options->profile);
  add_serving_options(command, options->serving);
  add_output_options(command, options->output);
}

}  // namespace shale
