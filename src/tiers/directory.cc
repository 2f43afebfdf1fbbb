#include <utility>

#include "tiers/file_tier.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

constexpr unsigned kThreads = 8;  // a remote's latency is hidden by asking for several blobs at once

}  // namespace

Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock, std::string name, bool late) {
  FileTierOptions tier;
  tier.name = std::move(name);
  tier.capacity_bytes = capacity_bytes;
  tier.first_guess = {5e-3, 1e8, 1e8};
  tier.shared = true;
  // What is on a remote file system need not fill the page cache too: copying to it and dropping it again would take
  // time from who computes, and reading it back measures the remote.
  tier.sync = tier.drop_cached = true;
  tier.threads = kThreads;
  const auto open = [folder, name = tier.name]() -> Result<OpenFolder> {
    OpenFolder opened;
    SHALE_ASSIGN(opened.files, BlobFiles::open(folder));
    opened.files->remove_temporary(kAbandonedAfterSeconds);
    opened.counted = file_at(opened.files->folder());  // were it replaced now, it is counted once more
    SHALE_ASSIGN(opened.stored_bytes, opened.files->total_bytes());
    opened.direct = opened.files->supports_direct();
    opened.describe = fmt::format("{}: directory {}, {} I/O by {} threads", name, opened.files->folder().string(),
                                  opened.direct ? "direct" : "buffered", kThreads);
    return opened;
  };
  return FileTier::make(std::move(tier), folder, late, open, BufferPool::make(), clock);
}

TierScheme dir_scheme() {
  return {.name = "remote",
          .meaning = "files in a mounted folder that many processes share",
          .place = TierScheme::Place::kFolder,
          .make = [](const TierSpec& spec, const Clock& clock) {
            return make_directory_tier(spec.place, spec.capacity_bytes, clock, spec.name, spec.late);
          }};
}

}  // namespace shale
