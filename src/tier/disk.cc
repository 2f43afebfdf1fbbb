#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <utility>

#include "tier/file_tier.h"
#include "tier/tiers.h"

namespace shale {
namespace {

// What one of several writers left unfinished for so long, it will not finish: on a local disk nothing takes minutes.
constexpr double kLeftOverAfterSeconds = 600;

// The writer's lock, or a share of it, held until closed; an empty descriptor where it cannot be had or nothing can be
// written.
Result<FileDescriptor> lock_folder(const std::filesystem::path& folder, bool several) {
  const std::filesystem::path path = folder / "lock";
  FileDescriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock && errno == EROFS) return FileDescriptor();
  if (!lock) return system_failure(errno, "open", path);
  if (flock(lock.get(), (several ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return FileDescriptor();
  return system_failure(errno, "lock", path);
}

}  // namespace

Result<std::unique_ptr<Tier>> make_disk_tier(const DiskTierOptions& options, const Clock& clock) {
  SHALE_ASSIGN(auto files, BlobFiles::open(options.folder));
  SHALE_ASSIGN(auto lock, lock_folder(files->folder(), options.several_writers));
  if (options.several_writers) {
    files->remove_temporary(kLeftOverAfterSeconds);
  } else if (lock) {
    files->remove_temporary(0);
    SHALE_TRY(files->remove_damaged());
  }
  const bool direct = options.direct_io && files->supports_direct();
  const auto buffers = BufferPool::make(options.spare_buffer_bytes);
  std::unique_ptr<UringReader> reader;
  if (options.io_uring) {
    if (auto started = UringReader::start(*files, buffers, direct)) reader = std::move(*started);
  }
  FileTierOptions tier;
  tier.name = options.name;
  tier.capacity_bytes = options.capacity_bytes;
  tier.first_guess = {1e-4, 1e9, 1e9};
  tier.read_only = !lock;
  tier.shared = options.several_writers;
  tier.counts = !options.several_writers;
  tier.write_mode = {.direct = direct, .sync = options.sync, .drop_cached = false};
  tier.direct_reads = direct;
  tier.describe = fmt::format("{}: {}, {} I/O, reads by {}{}", options.name, files->folder().string(),
                              direct ? "direct" : "buffered", reader ? "io_uring" : "threads",
                              lock ? "" : ", read-only (another process holds its lock, or it cannot be written)");
  return std::make_unique<FileTier>(std::move(tier), std::move(files), std::move(lock), buffers, std::move(reader),
                                    clock);
}

TierScheme file_scheme() {
  return {.name = "disk",
          .meaning = "files in a folder of this machine, written by one process at a time",
          .place = TierScheme::Place::kFolder,
          .size_required = true,
          .local_folder = true,
          .flags = {{"direct_io", true, "past the page cache, where the file system can"},
                    {"io_uring", true, "reads by io_uring, where the kernel lets it"},
                    {"sync", false, "a write counts once the device has it"}},
          .make = [](const TierSpec& spec, const Clock& clock) {
            return make_disk_tier({.folder = spec.place,
                                   .capacity_bytes = spec.capacity_bytes,
                                   .direct_io = spec.flag("direct_io"),
                                   .io_uring = spec.flag("io_uring"),
                                   .sync = spec.flag("sync"),
                                   .name = spec.name},
                                  clock);
          }};
}

}  // namespace shale
