// System calls on files, with errors as values.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace shale {

// An open file, closed with its owner.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// kFull for ENOSPC, EDQUOT and EFBIG, else kIo: "cannot write /x: No space left on device".
std::unexpected<Error> system_failure(int error, std::string_view doing, const std::filesystem::path& path);

// The device of the nearest folder above `path`, or it itself, that is there; 0 where none is.
std::uint64_t device_of(const std::filesystem::path& path);

// Which file or folder lies at the path; nothing where none does.
struct FileId {
  std::uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
std::optional<FileId> file_at(const std::filesystem::path& path);

// Mode 0700; one that exists is left as it is. Returns errno, 0 on success.
int make_private_folder(const std::filesystem::path& folder);

// Writes `body`, then `tail`, from the file's start; for direct I/O both must be aligned whole blocks.
Status write_all(int fd, std::span<const std::byte> body, std::span<const std::byte> tail,
                 const std::filesystem::path& path);

// All from `offset` to the file's end.
Result<std::vector<std::byte>> read_from(int fd, std::uint64_t offset, const std::filesystem::path& path);
// Writes all of it where the file stands, or to its end where it was opened so.
Status append_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

// Renames without replacing: EEXIST where `to` is there. Returns errno, 0 on success. File systems that cannot do so at
// once may, in a race of two writers, replace a file by its equal.
int rename_new(const std::filesystem::path& from, const std::filesystem::path& to);

// Nothing to do where the file system cannot synchronise folders.
Status sync_folder(const std::filesystem::path& folder);

// Calls `visit(entry)`, which returns a Status, for everything in a folder; what others remove meanwhile is skipped.
template <class Visit>
Status for_each_entry(const std::filesystem::path& folder, const Visit& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) SHALE_TRY(visit(*entry));
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    return system_failure(error.value(), "list", folder);
  }
  return {};
}

}  // namespace shale
