#include <fmt/format.h>

#include "bench/trial/chaos_run.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/units.h"

namespace shale {
namespace {

struct ChaosOptions {
  TrialOptions trial;
  std::size_t faults = 10000, kills = 1000;
};

constexpr char kExamples[] =
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
    "Examples:\n"
    "  shale bench chaos --faults 10000 --kills 1000 --seed 7";

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

Status run(const ChaosOptions& options) {
  if (options.kills > options.faults)
    return fail(ErrorCode::kInvalidArgument,
                "--kills {} exceeds --faults {}: kills are part of the faults, so give at most as many", options.kills,
                options.faults);
  SHALE_ASSIGN(const ScratchFolder scratch, make_scratch(options.trial));
  const TrialFolders folders(scratch.path());
  SHALE_ASSIGN(const std::vector<MixPrompt> prompts, answered_mix(options.trial, folders));
  ChaosRun chaos(options.trial, folders, prompts);
  const Status status = chaos.run(plan_faults(options.trial.seed, options.faults, options.kills));
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

void add_bench_chaos(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "chaos",
                                        "Whether a server stays right while it is killed and its storage fails", run);
  command->footer(kExamples);
  command->add_option("--faults", options->faults, "How many, kills included")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--kills", options->kills, "How many of them end the server")
      ->type_name("N")
      ->capture_default_str();
  add_trial_options(*command, options->trial);
  add_output_options(*command, options->trial.output);
}

}  // namespace shale
