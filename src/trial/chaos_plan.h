// What goes wrong with a server on trial, and when: a pure function of the seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

enum class FaultKind {
  kKill,         // SIGKILL, and started again
  kStop,         // SIGTERM while requests are running, and started again
  kTorn,         // killed, and files that were written last cut somewhere
  kFlip,         // one bit of a file of the tiers, their indexes or the metadata store
  kError,        // reads, writes, lists or removals of a tier fail; of a shared one, the server refuses: 503
  kDamage,       // what a tier reads has a flipped bit
  kFull,         // a tier has no room
  kLimit,        // no file may grow beyond some KiB, as on a full device: blobs, indexes and metadata store alike
  kSlow,         // everything that a tier does takes longer
  kHang,         // nothing of a tier comes to an end
  kGone,         // a tier's folder is moved away, and a file may take its place; or a shared tier's server is
  kClock,        // the wall clock jumps, and back
  kMemory,       // all pages of the process that can be read again are taken from it
  kDescriptors,  // no more files can be opened
  kPause,        // SIGSTOP, and SIGCONT
};
inline constexpr std::size_t kFaultKinds = 15;
std::string_view to_string(FaultKind kind);
// Whether it happens to one tier.
bool is_of_tier(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kKill;
  std::string tier = {};   // "disk" or "remote", or one that is shared, where it is one's
  double wait_s = 0;       // after the fault before
  double hold_s = 0;       // how long it stays; faults overlap
  std::uint64_t draw = 0;  // for what is chosen when it happens: which file, which bit
  bool probe = false;      // of a kill: what is stored before it has to be there after it
};
// `shared`: tiers that get two thirds of what is a tier's; without any, the plan is that of the seed alone.
std::vector<Fault> plan_faults(std::uint64_t seed, std::size_t faults, std::size_t kills,
                               const std::vector<std::string>& shared = {});

}  // namespace shale
