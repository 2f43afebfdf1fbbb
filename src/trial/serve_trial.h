// What putting a server on trial takes: one that is small enough to be full all the time, the answers that it must
// give, and what must hold of it when nobody asks anything.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "loadtest/serve/mix_clients.h"
#include "loadtest/serve/serve_child.h"
#include "runtime/serving.h"

namespace shale {

struct TrialOptions {
  ModelChoice model{.weights = "file"};  // which start at once
  OutputOptions output;
  std::size_t clients = 4, prompts = 40;
  std::uint64_t seed = 1;
  std::uint64_t pool_bytes = 64 << 20, memory_bytes = 16 << 20, disk_bytes = 48 << 20, remote_bytes = 96 << 20;
  std::string folder;               // for scratch folders; empty: Shale's cache folder
  std::vector<std::string> shared;  // URLs of tiers behind a network, below those in folders
};
// All but --json and --progress.
void add_trial_options(Command command, TrialOptions& options);

// Where a trial keeps its tiers.
struct TrialFolders {
  explicit TrialFolders(const std::filesystem::path& folder)
      : scratch(folder), disk(folder / "disk"), remote(folder / "remote"), faults(folder / "faults") {}
  std::filesystem::path scratch, disk, remote, faults;
};
Result<ScratchFolder> make_scratch(const TrialOptions& options);

// The words of `shale serve` with a pool and tiers of these sizes; without the memory tier where `memory` is false.
// `shared`: URLs of more tiers, below these.
std::vector<std::string> trial_words(const TrialOptions& options, const TrialFolders& folders, bool memory = true,
                                     const std::vector<std::string>& shared = {});
// The same words that name the tiers, for `shale cache`.
std::vector<std::string> trial_tiers(const TrialOptions& options, const TrialFolders& folders, bool memory,
                                     const std::vector<std::string>& shared = {});

// The mix of the seed, answered by a server that caches nothing.
Result<std::vector<MixPrompt>> answered_mix(const TrialOptions& options, const TrialFolders& folders);

// Bytes of a process that runs; 0 where it is gone.
std::uint64_t resident_bytes(pid_t pid);
std::size_t open_files(pid_t pid);

// Waits until the server has nothing more to do, which it must come to, and says what of it does not add up then:
// nobody runs or waits, requests hold no page, as many are finished as were asked, tiers are within their bounds, open
// files are few. kInternal says what was expected and found. `counts` of clients that are paused.
Status check_at_rest(const ServeChild& server, const MixCounts& counts);

}  // namespace shale
