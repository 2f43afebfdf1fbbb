#include <utility>

#include "tier/file_tier.h"
#include "tier/tiers.h"

namespace shale {
namespace {

constexpr unsigned kThreads = 8;  // a remote's latency is hidden by asking for several blobs at once
constexpr std::size_t kSpareBufferBytes = std::size_t{64} << 20;

}  // namespace

Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock) {
  SHALE_ASSIGN(auto files, BlobFiles::open(folder));
  files->remove_temporary(kAbandonedAfterSeconds);
  FileTierOptions tier;
  tier.name = "remote";
  tier.capacity_bytes = capacity_bytes;
  tier.first_guess = {5e-3, 1e8, 1e8};
  tier.shared = true;
  // What is on a remote file system need not fill the page cache too, and reading it back measures the remote.
  tier.write_mode = {.direct = false, .sync = true, .drop_cached = true};
  tier.threads = kThreads;
  tier.describe = fmt::format("remote: directory {}, buffered I/O by {} threads", files->folder().string(), kThreads);
  return std::make_unique<FileTier>(std::move(tier), std::move(files), FileDescriptor(),
                                    BufferPool::make(kSpareBufferBytes), nullptr, clock);
}

}  // namespace shale
