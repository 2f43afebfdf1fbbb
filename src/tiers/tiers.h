// The tiers there are. Each is one file of this folder; adding one adds its file and its line here. Its row says what
// its URLs may hold (tier_url.h), so that the command line, the messages and the conformance suite follow from it.
//
// A throttle is none: it goes around any of them, and so is an option of each.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tier/throttle.h"
#include "tier/tier.h"

// Alphabetical, by scheme.
#define SHALE_TIERS(X) \
  X(dir)               \
  X(file)              \
  X(memory)            \
  X(redis)             \
  X(rediss)            \
  X(s3)

namespace shale {

// What a URL says of a tier that exists, checked. A tier without one is as the options --memory-size, --disk-size and
// --remote make it.
struct TierSpec {
  std::string scheme;
  std::string name;  // of the tier; of those of one cache no two have the same
  std::uint64_t capacity_bytes = kUnlimited;
  std::string place;  // a folder; empty where the scheme has none
  // Where a tier behind a network is, as "host:6379", and the path there, without its first slash.
  std::string server = {}, path = {};
  std::optional<Throttle> throttle = {};
  std::vector<std::pair<std::string, bool>> flags = {};         // as given
  std::vector<std::pair<std::string, std::string>> texts = {};  // as given
  // No URL says this: a folder that cannot be opened, or does not answer for seconds, is opened when it can be. Until
  // then the tier is not reachable.
  bool late = false;

  // The value of a flag, and of a text, that the scheme has.
  bool flag(std::string_view wanted) const;
  std::string text(std::string_view wanted) const;
};

struct TierScheme {
  enum class Place { kNone, kFolder, kServer };
  struct Flag {
    std::string_view name;
    bool unset;  // what holds where a URL does not give it
    std::string_view meaning;
  };
  // An option that is neither on nor off. Secrets are none: command lines are seen by all, so that a text names the
  // file, or the scheme reads the environment.
  struct Text {
    std::string_view name;
    std::string_view value;  // what to write: "SECONDS"
    std::string_view unset;  // what holds where a URL does not give it
    std::string_view meaning;
  };

  std::string_view scheme = {};  // filled in from the table
  std::string_view name;         // of its tiers, where a URL gives none: "disk"
  std::string_view meaning;      // a few words for the reference
  Place place = Place::kNone;
  bool size_required = false;            // of what this machine has little of, a URL says how much
  bool local_folder = false;             // a folder of this machine, in which the metadata store may lie, too
  std::string_view server_example = {};  // of kServer: "//localhost:6379"
  std::vector<Flag> flags = {};
  std::vector<Text> texts = {};
  // Refuses a server, path or texts that the scheme does not have, if it has any. Opens and asks nothing.
  Status (*check)(const TierSpec& spec) = nullptr;
  // Of a server: what is the same for two URLs of one place. Null: server and path as given.
  std::string (*place_of)(const TierSpec& spec) = nullptr;
  Result<std::unique_ptr<Tier>> (*make)(const TierSpec& spec, const Clock& clock) = nullptr;

  std::string example() const;  // "file:///folder?size=8GiB"
};

// Defined by the tier's file: memory_scheme and so on.
#define SHALE_DECLARE(name) TierScheme name##_scheme();
SHALE_TIERS(SHALE_DECLARE)
#undef SHALE_DECLARE

std::vector<TierScheme> tier_schemes();

// One tier a URL, in their order, which is fast to slow. Tiers that a URL does not name are called as their scheme has
// it, the second of that name "disk2". kInvalidArgument: what tier_url.h refuses, a scheme or option that is none (with
// those there are), a value that is none, a place that is missing or not wanted, a name or a place given twice.
Result<std::vector<TierSpec>> parse_tiers(const std::vector<std::string_view>& urls);

// kInvalidArgument: a name or a place twice. Two tiers in one folder would count and remove each other's blobs.
Status check_distinct(const std::vector<TierSpec>& specs);

// Opens it, throttled where it is to be.
Result<std::unique_ptr<Tier>> make_tier(const TierSpec& spec, const Clock& clock);
Result<std::unique_ptr<Tier>> make_tier(std::string_view url, const Clock& clock);

// The same by hand, for callers that have no text.

// Encoded objects in host memory; gone with the process. A read hands out the stored bytes themselves, without a copy.
std::unique_ptr<Tier> make_memory_tier(std::uint64_t capacity_bytes, const Clock& clock, std::string name = "memory");

struct DiskTierOptions {
  std::filesystem::path folder;  // created, mode 0700
  std::uint64_t capacity_bytes = kUnlimited;
  bool direct_io = true;  // falls back to buffered I/O where the file system refuses it
  bool io_uring = true;   // falls back to threads that block in pread where the kernel refuses it
  bool sync = false;      // wait for the device before a write counts; without it, power loss may cost recent blobs
  std::uint64_t spare_buffer_bytes = std::uint64_t{128} << 20;  // kept for reuse, so that reads fault no pages
  std::string name = "disk";
  // Any number of tiers opened so may write to the folder at once, and none opened otherwise. What lies there is not
  // counted when it is opened: whoever keeps an index of it says so (Tier::count_others).
  bool several_writers = false;
  bool late = false;  // as TierSpec::late; a folder that somebody else has locked counts as one that cannot be opened
};
// Bounded, survives restart and kill. One writer a folder, but where all say `several_writers`: a second process, or a
// second tier in this one, opens it read-only. kInvalidArgument where the folder belongs to somebody else; kIo. See
// docs/formats/disk.md.
Result<std::unique_ptr<Tier>> make_disk_tier(const DiskTierOptions& options, const Clock& clock);

// Any mounted path as the remote tier, in the same format; many processes share it without locks, for blobs are
// immutable and named by content. Buffered I/O; a write counts once the file system has it (fsync). What other
// processes store counts towards the capacity as of opening, and again once it is full (Tier::count_again).
Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock, std::string name = "remote", bool late = false);

}  // namespace shale
