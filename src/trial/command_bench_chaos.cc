#include <fmt/format.h>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/units.h"
#include "trial/chaos_run.h"

namespace shale {
namespace {

struct ChaosOptions {
  TrialOptions trial;
  std::size_t faults = 10000, kills = 1000;
};

constexpr char kBenchChaosExamples[] =
    "A server with a small pool and small tiers is asked by mixed clients (`shale bench soak`) while the seed's "
    "faults\n"
    "happen to it. What must hold: every request is answered, though one may be sent again when the server went away\n"
    "under it; exact answers are those of a server that caches nothing; at rest the sums of /metrics come out and no\n"
    "page is held; `shale cache verify` finds no more damage than was done; what was stored is found after a kill.\n"
    "\n"
    "  kill         SIGKILL, and started again        slow, hang   a tier takes long, or for ever\n"
    "  stop         SIGTERM under load                 gone         its folder is moved away\n"
    "  torn         killed, and files cut              clock        the wall clock jumps\n"
    "  flip         one bit of a stored file           memory       the process's pages are taken\n"
    "  error, full  of a tier                          descriptors  no file can be opened\n"
    "  damage       a tier reads flipped bits          pause        SIGSTOP for a moment\n"
    "  limit        no file may grow\n"
    "\n"
    "--shared adds tiers in Redis and S3, through a proxy: error is 503 or -LOADING, slow a narrow network, hang a\n"
    "server that says nothing, gone one that breaks connections, and of Redis, half the time, comes back empty.\n"
    "\n"
    "Examples:\n"
    "  shale bench chaos --faults 10000 --kills 1000 --seed 7\n"
    "  shale bench chaos --shared 'redis://127.0.0.1:6379?timeout=500ms&deadline=1s'";

void print_shared(const ChaosCounts& counts, bool json) {
  for (const auto& [name, shared] : counts.shared) {
    Json faults = Json::object();
    std::string text;
    for (std::size_t kind = 0; kind < kFaultKinds; ++kind) {
      if (shared.faults[kind] == 0) continue;
      const std::string_view kind_name = to_string(static_cast<FaultKind>(kind));
      faults[std::string(kind_name)] = shared.faults[kind];
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind_name, shared.faults[kind]);
    }
    if (json) {
      print_json({{"tier", name},
                  {"faults", faults},
                  {"read_bytes", shared.read_bytes},
                  {"written_bytes", shared.written_bytes},
                  {"read_errors", shared.read_errors},
                  {"write_errors", shared.write_errors},
                  {"misses", shared.misses},
                  {"breaker_opened", shared.breaker_opened},
                  {"breaker_refused", shared.breaker_refused}});
    } else {
      fmt::print(
          "{}: {}; {} read, {} written, {} reads and {} writes failed, {} misses, left alone {} times, {} refused "
          "then\n",
          name, text, format_bytes(static_cast<std::uint64_t>(shared.read_bytes)),
          format_bytes(static_cast<std::uint64_t>(shared.written_bytes)), shared.read_errors, shared.write_errors,
          shared.misses, shared.breaker_opened, shared.breaker_refused);
    }
  }
}

void print_result(const ChaosOptions& options, const ChaosRun& run, bool passed) {
  const ChaosCounts counts = run.counts();
  if (!options.trial.output.json)
    fmt::print("{:<12}  {:>6}  {:>8}  {:>10}\n", "FAULT", "TIMES", "REQUESTS", "SENT AGAIN");
  for (std::size_t kind = 0; kind < kFaultKinds; ++kind) {
    const auto& [faults, requests, sent_again] = counts.kinds[kind];
    const std::string_view name = to_string(static_cast<FaultKind>(kind));
    if (options.trial.output.json) {
      print_json({{"fault", name}, {"times", faults}, {"requests", requests}, {"sent_again", sent_again}});
    } else {
      fmt::print("{:<12}  {:>6}  {:>8}  {:>10}\n", name, faults, requests, sent_again);
    }
  }
  print_shared(counts, options.trial.output.json);
  const MixCounts& clients = counts.clients;
  if (options.trial.output.json) {
    print_json({{"seed", options.trial.seed},
                {"passed", passed},
                {"requests", clients.answered},
                {"sent_again", clients.sent_again},
                {"wrong", clients.wrong},
                {"unanswered", clients.unanswered},
                {"at_rest", counts.at_rest},
                {"probes", counts.probes},
                {"probe_tokens", counts.probe_tokens},
                {"verified", counts.verified},
                {"blobs_damaged", counts.damaged},
                {"extents_found_damaged", counts.found},
                {"resident_first", counts.resident_first},
                {"resident_max", counts.resident_max},
                {"failures", run.failures()}});
    return;
  }
  fmt::print("seed {}: {} requests as they must be, {} sent again, {} wrong, {} without an answer\n",
             options.trial.seed, clients.answered, clients.sent_again, clients.wrong, clients.unanswered);
  fmt::print(
      "{} times at rest; {} probes of {} tokens in all found after a kill; verified {} times: {} blobs damaged, "
      "{} extents found damaged at most; {} resident at first, {} at most\n",
      counts.at_rest, counts.probes, counts.probe_tokens, counts.verified, counts.damaged, counts.found,
      format_bytes(counts.resident_first), format_bytes(counts.resident_max));
}

Status run_bench_chaos(const ChaosOptions& options) {
  if (options.kills > options.faults)
    return fail(ErrorCode::kInvalidArgument,
                "--kills {} exceeds --faults {}: kills are part of the faults, so give at most as many", options.kills,
                options.faults);
  SHALE_ASSIGN(const ScratchFolder scratch, make_scratch(options.trial));
  const TrialFolders folders(scratch.path());
  SHALE_ASSIGN(const std::vector<MixPrompt> prompts, answered_mix(options.trial, folders));
  SHALE_ASSIGN(SharedTiers shared, SharedTiers::open(options.trial.shared));
  ChaosRun chaos(options.trial, folders, shared, prompts);
  const Status status = chaos.run(plan_faults(options.trial.seed, options.faults, options.kills, shared.names()));
  const std::vector<std::string> failures = chaos.failures();
  print_result(options, chaos, status && failures.empty());
  const std::string again =
      fmt::format("chaos --seed {} --faults {} --kills {}", options.trial.seed, options.faults, options.kills);
  if (!status) return fail_in(again, status.error());
  if (failures.empty()) return {};
  return fail(ErrorCode::kInternal, "{}: {} times something was not as it must be, first: {}", again, failures.size(),
              failures.front());
}

}  // namespace

void add_bench_chaos(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "chaos", "Whether a server stays right while it is killed and its storage fails",
                  run_bench_chaos);
  command.footer(kBenchChaosExamples);
  command.add_option("--faults", options->faults, "How many, kills included")
      .range(1, 1 << 24)
      .type_name("N")
      .capture_default_str();
  command.add_option("--kills", options->kills, "How many of them end the server").type_name("N").capture_default_str();
  add_tiers(command, "--shared", options->trial.shared, "Tiers in Redis and S3 as well, which fail, too");
  add_trial_options(command, options->trial);
  add_output_options(command, options->trial.output);
}

}  // namespace shale
