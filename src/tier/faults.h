// Faults on demand, for seeing what a deployment does in trouble (`shale serve --faults`, `shale bench chaos`). A file
// says what is wrong now, a line for each tier that something is wrong with, by its name:
//
//   disk fail_reads,delay=0.2     reads fail (kIo), and everything takes 0.2 s longer
//   remote full                   writes are refused (kFull)
//   clock 3600                    the wall clock is an hour ahead; a tier cannot be called so here
//
// Words are fail_reads, flip_reads (one bit of every read), fail_writes, full, fail_lists, fail_removals,
// delay=SECONDS, and hang, which makes begun and new operations wait until the word is gone. A file that is not there
// says that nothing is wrong; so that no half of one is read, it is replaced by renaming.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/error.h"
#include "tier/tier.h"

namespace shale {

struct TierFaults {
  bool fail_reads = false, flip_reads = false, fail_writes = false, full = false, fail_lists = false,
       fail_removals = false, hang = false;
  double delay_s = 0;  // of every operation
};

struct Faults {
  std::map<std::string, TierFaults, std::less<>> tiers;
  double clock_s = 0;  // that the wall clock is ahead
};
// kInvalidArgument says which line is not understood.
Result<Faults> parse_faults(std::string_view text);

// Looked at anew by every call. Thread-safe.
class FaultFile {
 public:
  // kInvalidArgument where it is there and not understood; later that counts as nothing being wrong.
  static Result<std::shared_ptr<const FaultFile>> open(std::filesystem::path path);
  Faults now() const;
  TierFaults of(std::string_view tier) const;

 private:
  explicit FaultFile(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path path_;
};

// The tier with the faults that the file states for its name.
std::unique_ptr<Tier> make_faulty_tier(std::unique_ptr<Tier> tier, std::shared_ptr<const FaultFile> file,
                                       const Clock& clock);

}  // namespace shale
