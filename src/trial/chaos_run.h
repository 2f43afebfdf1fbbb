// One run of a plan of faults against a server that mixed clients ask all the time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trial/chaos_plan.h"
#include "trial/chaos_trouble.h"
#include "trial/serve_trial.h"

namespace shale {

struct ChaosCounts {
  struct Kind {
    std::uint64_t faults = 0;
    std::uint64_t requests = 0;    // that were running when it began, or begun while it lasted
    std::uint64_t sent_again = 0;  // of those, as the server went away under them
  };
  // Sums over all servers on trial, as their metrics say before they end.
  struct Shared {
    std::array<std::uint64_t, kFaultKinds> faults = {};  // of its own, which the kinds' have, too
    double read_bytes = 0, written_bytes = 0, read_errors = 0, write_errors = 0, misses = 0;
    double breaker_opened = 0, breaker_refused = 0;
  };
  std::array<Kind, kFaultKinds> kinds = {};
  std::map<std::string, Shared> shared = {};           // by name
  std::uint64_t at_rest = 0;                           // times that the sums were looked at
  std::uint64_t probes = 0, probe_tokens = 0;          // kills before which something was stored, and how much
  std::uint64_t verified = 0, damaged = 0, found = 0;  // times; blobs damaged by faults; extents found damaged
  std::uint64_t resident_first = 0, resident_max = 0;  // bytes, at rest
  MixCounts clients;
};

class ChaosRun {
 public:
  // All outlive it.
  ChaosRun(const TrialOptions& options, const TrialFolders& folders, SharedTiers& shared,
           std::span<const MixPrompt> prompts);

  // Runs to the end of the plan. Fails where the server ended by itself, or did not begin; `failures` has what else was
  // not as it must be.
  Status run(std::span<const Fault> plan);
  ChaosCounts counts() const;
  std::vector<std::string> failures() const;

 private:
  using Time = std::chrono::steady_clock;
  struct Ending {
    Time::time_point at;
    std::size_t number;
    FaultKind kind;
    std::uint64_t begun_before;  // requests
  };
  struct Probe;

  Status start();
  Status step(const Fault& fault);
  Status end_what_is_due(Time::time_point until);
  Status kill_and_start(const Fault& fault);
  Status stop_and_start();
  Status wait_until(Time::time_point time);
  Status rest();
  Status verify();
  void count_shared();
  Result<std::optional<Probe>> store_probe(std::uint64_t draw);
  Status find_probe(const Probe& probe);
  Result<std::string> ask_cache(std::vector<std::string> words) const;
  Result<Json> list_stored_runs() const;
  Result<Json> list_stored_runs(const Json& among) const;
  void note_failure(const std::string& what);
  ChaosCounts::Kind& kind(FaultKind kind) { return counts_.kinds[static_cast<std::size_t>(kind)]; }

  const TrialOptions& options_;
  const TrialFolders folders_;
  const SharedTiers& shared_;
  Trouble trouble_;
  ChaosCounts counts_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::string> failures_;
  std::string wrong_now_ = "nothing";

  std::atomic<std::size_t> number_ = 0;  // of the fault, from 0
  std::size_t starts_ = 0;
  std::vector<Ending> endings_;
  std::optional<ServeChild> server_;
  MixClients clients_;  // ends first
};

}  // namespace shale
