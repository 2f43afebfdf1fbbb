#include "io/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace shale {

namespace fs = std::filesystem;

std::unexpected<Error> system_failure(int error, std::string_view doing, const fs::path& path) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return fail(full ? ErrorCode::kFull : ErrorCode::kIo, "cannot {} {}: {}", doing, path.string(), std::strerror(error));
}

std::uint64_t device_of(const fs::path& path) {
  struct stat status;
  for (fs::path each = path;; each = each.parent_path()) {
    if (stat(each.c_str(), &status) == 0) return status.st_dev;
    if (each == each.parent_path()) return 0;
  }
}

std::optional<FileId> file_at(const fs::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

int make_private_folder(const fs::path& folder) {
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

Status write_all(int fd, std::span<const std::byte> body, std::span<const std::byte> tail, const fs::path& path) {
  std::size_t written = 0;
  while (written < body.size() + tail.size()) {
    const auto body_left = body.subspan(std::min(written, body.size()));
    const auto tail_left = tail.subspan(std::max(written, body.size()) - body.size());
    const iovec pieces[] = {{const_cast<std::byte*>(body_left.data()), body_left.size()},
                            {const_cast<std::byte*>(tail_left.data()), tail_left.size()}};
    const int skip = body_left.empty() ? 1 : 0;
    const ssize_t count = pwritev(fd, pieces + skip, 2 - skip, static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_failure(count < 0 ? errno : ENOSPC, "write", path);
    written += static_cast<std::size_t>(count);
  }
  return {};
}

Result<std::vector<std::byte>> read_from(int fd, std::uint64_t offset, const fs::path& path) {
  struct stat status;
  if (fstat(fd, &status) != 0) return system_failure(errno, "read", path);
  std::vector<std::byte> bytes(
      static_cast<std::uint64_t>(status.st_size) > offset ? static_cast<std::size_t>(status.st_size) - offset : 0);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(errno, "read", path);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

Status append_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(errno, "write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

int rename_new(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (access(to.c_str(), F_OK) == 0) return EEXIST;
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

Status sync_folder(const fs::path& folder) {
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && (fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOSYS)) return {};
  return system_failure(errno, "synchronise", folder);
}

}  // namespace shale
