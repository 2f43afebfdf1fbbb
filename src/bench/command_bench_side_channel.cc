#include <fmt/format.h>

#include <numeric>

#include "bench/side_channel.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/quantile.h"
#include "core/units.h"
#include "report/output.h"

namespace shale {
namespace {

struct BenchSideChannelOptions {
  OutputOptions output;
  SideChannelOptions measure;
};

constexpr char kBenchSideChannelExamples[] =
    "A server with two tenants is started. Again and again a victim sends a new prompt, and then an attacker that "
    "prompt,\n"
    "a right guess, or another one, a wrong guess; once as another tenant, once with the victim's own key. P is of a "
    "rank\n"
    "test (Mann-Whitney, two-sided) between right and wrong guesses: of times to the first token, as the attacker's\n"
    "client sees them, and of the tokens that `usage` says were cached. Fails where `usage` tells another tenant.\n"
    "\n"
    "Examples:\n"
    "  shale bench side-channel\n"
    "  shale bench side-channel --tries 1000 --seed 7 --json";

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Json guesses_json(const SideChannelGuesses& guesses) {
  return {{"tries", guesses.ttft_s.size()},
          {"ttft_seconds", quantile(guesses.ttft_s, 0.5)},
          {"cached_tokens", mean(guesses.cached_tokens)},
          {"found", guesses.found}};
}

Json side_channel_json(const SideChannelRow& row) {
  return {{"test", "side-channel"},           {"attacker", row.attacker},      {"right", guesses_json(row.right)},
          {"wrong", guesses_json(row.wrong)}, {"ttft_p", row.ttft().p},        {"ttft_auc", row.ttft().auc},
          {"cached_p", row.cached().p},       {"cached_auc", row.cached().auc}};
}

void print_side_channel(const std::vector<SideChannelRow>& rows) {
  fmt::print("{:<16}{:>7}{:>26}{:>8}{:>10}{:>28}{:>10}\n", "ATTACKER", "TRIES", "FIRST TOKEN, RIGHT/WRONG", "AUC", "P",
             "CACHED TOKENS, RIGHT/WRONG", "P");
  for (const SideChannelRow& row : rows) {
    fmt::print("{:<16}{:>7}{:>26}{:>8.3f}{:>10.2g}{:>28}{:>10.2g}\n", row.attacker,
               row.right.ttft_s.size() + row.wrong.ttft_s.size(),
               fmt::format("{} / {}", format_duration(quantile(row.right.ttft_s, 0.5)),
                           format_duration(quantile(row.wrong.ttft_s, 0.5))),
               row.ttft().auc, row.ttft().p,
               fmt::format("{:.1f} / {:.1f}", mean(row.right.cached_tokens), mean(row.wrong.cached_tokens)),
               row.cached().p);
  }
}

Status run_bench_side_channel(const BenchSideChannelOptions& options) {
  SHALE_ASSIGN(const std::vector<SideChannelRow> rows, measure_side_channel(options.measure));
  if (options.output.json) {
    for (const SideChannelRow& row : rows) print_json(side_channel_json(row));
  } else {
    print_side_channel(rows);
  }
  if (rows.front().right.found == 0) return {};
  return fail(ErrorCode::kInternal, "another tenant's prompt was found cached in {} of {} right guesses",
              rows.front().right.found, rows.front().right.ttft_s.size());
}

}  // namespace

void add_bench_side_channel(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "side-channel",
                  "What one tenant can tell of another's prompts by asking, and in what time", run_bench_side_channel);
  command.footer(kBenchSideChannelExamples);
  SideChannelOptions& measure = options->measure;
  command.add_option("--model", measure.model, "A registered name or a path to a GGUF file")
      .envname("SHALE_MODEL")
      .type_name("MODEL")
      .capture_default_str();
  command.add_option("--threads", measure.threads, "Threads of the server; 0: its default")
      .type_name("N")
      .capture_default_str();
  command.add_option("--tries", measure.tries, "Guesses of each attacker, half of them right")
      .range(2u, 1u << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--words", measure.words, "Of a prompt").range(16u, 1u << 16).type_name("N").capture_default_str();
  command.add_option("--seed", measure.seed, "Seed of the prompts and their order")
      .type_name("N")
      .capture_default_str();
  add_output_options(command, options->output);
}

}  // namespace shale
