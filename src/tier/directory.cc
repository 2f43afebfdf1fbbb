#include <utility>

#include "tier/file_tier.h"
#include "tier/tiers.h"

namespace shale {
namespace {

constexpr unsigned kThreads = 8;  // a remote's latency is hidden by asking for several blobs at once
constexpr std::size_t kSpareBufferBytes = std::size_t{64} << 20;

}  // namespace

Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock, std::string name) {
  SHALE_ASSIGN(auto files, BlobFiles::open(folder));
  files->remove_temporary(kAbandonedAfterSeconds);
  FileTierOptions tier;
  tier.name = std::move(name);
  tier.capacity_bytes = capacity_bytes;
  tier.first_guess = {5e-3, 1e8, 1e8};
  tier.shared = true;
  // What is on a remote file system need not fill the page cache too, and reading it back measures the remote.
  tier.write_mode = {.direct = false, .sync = true, .drop_cached = true};
  tier.threads = kThreads;
  tier.describe =
      fmt::format("{}: directory {}, buffered I/O by {} threads", tier.name, files->folder().string(), kThreads);
  return std::make_unique<FileTier>(std::move(tier), std::move(files), FileDescriptor(),
                                    BufferPool::make(kSpareBufferBytes), nullptr, clock);
}

TierScheme dir_scheme() {
  return {.name = "remote",
          .meaning = "files in a mounted folder that many processes share",
          .place = TierScheme::Place::kFolder,
          .make = [](const TierSpec& spec, const Clock& clock) {
            return make_directory_tier(spec.place, spec.capacity_bytes, clock, spec.name);
          }};
}

}  // namespace shale
