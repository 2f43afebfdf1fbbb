// The demo's own cache: a fresh folder, tiers smaller than what it holds, slower hardware emulated.
//
//   DemoStack ── owns ──> TemporaryFolder, EngineStack
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine_stack.h"
#include "tiers/tiers.h"

namespace shale {

// Private, and removed with everything in it.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

struct DemoHardware {
  // Shares of what all documents take uncompressed: together less than all of it, so that there is something to decide.
  double memory_share = 0.15, disk_share = 0.30;
  Throttle disk, remote;  // emulated
};

struct DemoTier {
  std::string name;
  std::string emulated;  // name of the throttle; empty: the machine's own
  std::uint64_t capacity_bytes = kUnlimited;
  TierSpeed own;  // measured on this machine, without throttle
};

class DemoStack {
 public:
  // `tokens`: of all documents together; `tokens_max`: of the longest prompt. The model outlives the stack.
  static Result<std::unique_ptr<DemoStack>> open(Model& model, const Tokenizer& tokenizer, CacheOptions options,
                                                 const DemoHardware& hardware, std::uint64_t tokens,
                                                 std::uint32_t tokens_max);

  Engine& engine() { return stack_->engine(); }
  Cache& cache() { return stack_->cache(); }
  const Clock& clock() const { return clock_; }
  const std::vector<DemoTier>& tiers() const { return tiers_; }

  // Finishes background work, planning included; kCancelled when interrupted.
  Status settle();
  void empty_pool() { stack_->empty_pool(); }  // as other requests would have

 private:
  explicit DemoStack(TemporaryFolder folder) : folder_(std::move(folder)) {}

  TemporaryFolder folder_;
  RealClock clock_;
  std::vector<DemoTier> tiers_;
  std::unique_ptr<EngineStack> stack_;
};

}  // namespace shale
