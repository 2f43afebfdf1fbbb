#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <utility>

#include "tiers/file_tier.h"
#include "tiers/tiers.h"

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

Result<OpenFolder> open_folder(const DiskTierOptions& options, const std::shared_ptr<BufferPool>& buffers) {
  OpenFolder open;
  SHALE_ASSIGN(open.files, BlobFiles::open(options.folder));
  SHALE_ASSIGN(open.lock, lock_folder(open.files->folder(), options.several_writers));
  open.read_only = !open.lock;
  if (open.read_only && options.late) {
    return fail(ErrorCode::kBusy, "{} cannot be written, or another program holds it for itself",
                open.files->folder().string());
  }
  if (options.several_writers) {
    open.files->remove_temporary(kLeftOverAfterSeconds);
  } else {
    if (open.lock) {
      open.files->remove_temporary(0);
      SHALE_TRY(open.files->remove_damaged());
    }
    SHALE_ASSIGN(open.stored_bytes, open.files->total_bytes());
  }
  open.direct = options.direct_io && open.files->supports_direct();
  if (options.io_uring) {
    if (auto started = UringReader::start(*open.files, buffers, open.direct)) open.reader = std::move(*started);
  }
  open.describe = fmt::format("{}: {}, {} I/O, reads by {}{}", options.name, open.files->folder().string(),
                              open.direct ? "direct" : "buffered", open.reader ? "io_uring" : "threads",
                              open.lock ? "" : ", read-only (another process holds its lock, or it cannot be written)");
  return open;
}

}  // namespace

Result<std::unique_ptr<Tier>> make_disk_tier(const DiskTierOptions& options, const Clock& clock) {
  const auto buffers = BufferPool::make(options.spare_buffer_bytes);
  FileTierOptions tier;
  tier.name = options.name;
  tier.capacity_bytes = options.capacity_bytes;
  tier.first_guess = {1e-4, 1e9, 1e9};
  tier.shared = options.several_writers;
  tier.counts = !options.several_writers;
  tier.sync = options.sync;
  const auto open = [options, buffers] { return open_folder(options, buffers); };
  return FileTier::make(std::move(tier), options.folder, options.late, open, buffers, clock);
}

TierScheme file_scheme() {
  return {.name = "disk",
          .meaning = "files in a folder of this machine, that any number of processes share",
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
                                   .name = spec.name,
                                   .late = spec.late},
                                  clock);
          }};
}

}  // namespace shale
