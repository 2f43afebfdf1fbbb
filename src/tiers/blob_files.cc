#include "tiers/blob_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/parsing.h"
#include "core/random.h"
#include "tiers/blob_frame.h"

namespace shale {
namespace {

constexpr std::uint64_t kBlobFileBytesMax = std::uint64_t{4} << 30;    // longer than any chunk
constexpr std::uint64_t kUncheckedBytesMax = std::uint64_t{16} << 20;  // longer files show their footer first

namespace fs = std::filesystem;

constexpr int kPublishAttempts = 8;
constexpr std::uint64_t kTemporaryFolders = 16;  // creating files in one folder takes turns, in several it does not

fs::path temporary_folder(const fs::path& folder, std::uint64_t shard) {
  return folder / "temporary" / fmt::format("{:x}", shard);
}

// Linux makes the file before it finds that it cannot be written directly. By O_EXCL it is known to be this call's own.
FileDescriptor open_direct(const fs::path& file, int flags) {
  FileDescriptor opened(::open(file.c_str(), flags | O_DIRECT, 0600));
  if (!opened && errno == EINVAL && (flags & O_EXCL)) {
    unlink(file.c_str());
    errno = EINVAL;
  }
  return opened;
}

// Another file system may have been mounted there since it was found that one can be read directly.
FileDescriptor open_file(const fs::path& file, int flags, bool direct) {
  if (direct) {
    FileDescriptor opened = open_direct(file, flags);
    if (opened || errno != EINVAL) return opened;
  }
  return FileDescriptor(::open(file.c_str(), flags, 0600));
}

bool is_blob_length(std::uint64_t bytes) { return bytes > 0 && bytes % kIoAlignment == 0; }

std::optional<std::uint64_t> length(const fs::path& file) {
  struct stat status;
  if (lstat(file.c_str(), &status) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(status.st_size);
}

// Whole blocks; 0 for a file that is not there.
std::uint64_t occupied_bytes(std::optional<std::uint64_t> length) {
  return length ? round_up(std::max<std::uint64_t>(*length, 1), kIoAlignment) : 0;
}

double seconds_since_change(const fs::path& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

// `ours`: made by nobody but Shale, so that its mode may be corrected.
Status prepare_folder(const fs::path& folder, bool ours) {
  const int error = make_private_folder(folder);
  struct stat status;
  if (stat(folder.c_str(), &status) != 0) return system_failure(error ? error : errno, "create", folder);
  if (!S_ISDIR(status.st_mode)) return fail(ErrorCode::kInvalidArgument, "{} is not a folder", folder.string());
  if (!ours) {
    const bool anybody = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
    if (!anybody) return {};
    return fail(ErrorCode::kInvalidArgument, "everybody may replace what lies in {}: `chmod o-w {}` first",
                folder.string(), folder.string());
  }
  if (status.st_uid != geteuid()) {
    return fail(ErrorCode::kInvalidArgument, "{} belongs to another user; name a folder of your own", folder.string());
  }
  if ((status.st_mode & 077) != 0 && chmod(folder.c_str(), 0700) != 0) {
    return system_failure(errno, "make private", folder);
  }
  return {};
}

}  // namespace

std::string part_name(std::uint32_t part) {
  return part == BlobId::kManifest ? std::string("manifest") : fmt::format("{:08x}", part);
}

std::optional<std::uint32_t> parse_part(std::string_view name) {
  if (name == "manifest") return BlobId::kManifest;
  const auto part = parse_integer<std::uint32_t>(name, 16);
  return part && part_name(*part) == name ? part : std::nullopt;
}

BlobFiles::BlobFiles(fs::path folder) : folder_(std::move(folder)), session_(fmt::format("{:016x}", random_number())) {}

Result<std::unique_ptr<BlobFiles>> BlobFiles::open(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::absolute(folder, error).lexically_normal();
  if (error) return system_failure(error.value(), "find", folder);
  std::unique_ptr<BlobFiles> files(new BlobFiles(absolute));
  SHALE_TRY(files->make_folders());
  files->device_ = device_of(absolute);
  return files;
}

Status BlobFiles::make_folders() const {
  std::error_code error;
  fs::create_directories(folder_.parent_path(), error);  // where that fails, so does what follows
  SHALE_TRY(prepare_folder(folder_, false));
  SHALE_TRY(prepare_folder(folder_ / "objects", true));
  SHALE_TRY(prepare_folder(folder_ / "temporary", true));
  for (std::uint64_t shard = 0; shard < kTemporaryFolders; ++shard) {
    SHALE_TRY(prepare_folder(temporary_folder(folder_, shard), true));
  }
  return {};
}

// Somebody may mount it again, which may give it another number: then its folders are there.
Status BlobFiles::check_there() const {
  if (file_at(folder_ / "objects") || device_of(folder_) == device_) return {};
  return fail(ErrorCode::kIo, "{} is gone: its file system is not mounted", folder_.string());
}

fs::path BlobFiles::object_folder(const Hash128& object) const {
  const std::string name = object.hex();
  return folder_ / "objects" / name.substr(0, 2) / name;
}

fs::path BlobFiles::path(const BlobId& id) const { return object_folder(id.object) / part_name(id.part); }

fs::path BlobFiles::temporary_path() const {
  const std::uint64_t number = temporaries_.fetch_add(1);
  return temporary_folder(folder_, number % kTemporaryFolders) / fmt::format("{}-{}", session_, number);
}

Result<BlobFiles::OpenBlob> BlobFiles::open_blob(const BlobId& id, bool direct) const {
  const fs::path file = path(id);
  OpenBlob blob{open_file(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, direct), 0};
  if (!blob.file && errno == ENOENT) {
    SHALE_TRY(check_there());
    return fail(ErrorCode::kNotFound, "{} is not there", file.string());
  }
  struct stat status;
  if (!blob.file || fstat(blob.file.get(), &status) != 0) return system_failure(errno, "open", file);
  blob.file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || !is_blob_length(blob.file_bytes) || blob.file_bytes > kBlobFileBytesMax) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes is not the length of a blob's file", file.string(), blob.file_bytes);
  }
  if (blob.file_bytes > kUncheckedBytesMax) SHALE_TRY(check_footer(id, blob));
  return blob;
}

Status BlobFiles::check_footer(const BlobId& id, const OpenBlob& blob) const {
  AlignedBuffer block(kIoAlignment);
  const auto offset = static_cast<off_t>(blob.file_bytes - block.size());
  ssize_t count = -1;
  do {
    count = pread(blob.file.get(), block.data(), block.size(), offset);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return system_failure(errno, "read", path(id));
  if (count != std::ssize(block.bytes()))
    return fail(ErrorCode::kCorrupt, "{}: ends before its length", path(id).string());
  SHALE_TRY(framed_length(id, block.bytes(), blob.file_bytes));
  return {};
}

Result<BlobBytes> BlobFiles::read(const BlobId& id, const BlobRange& range, bool direct, BufferPool& buffers) const {
  SHALE_ASSIGN(const OpenBlob blob, open_blob(id, direct));
  SHALE_ASSIGN(const std::uint64_t end, blocks_end(id, range, blob.file_bytes));
  const std::uint64_t begin = first_block(range);
  const auto buffer = buffers.get(end - begin);
  for (std::size_t done = 0; done < buffer->size();) {
    const ssize_t count =
        pread(blob.file.get(), buffer->data() + done, buffer->size() - done, static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(errno, "read", path(id));
    if (count == 0) return fail(ErrorCode::kCorrupt, "{}: ends before its length", path(id).string());
    done += static_cast<std::size_t>(count);
  }
  if (!range.whole()) return buffer;
  return unframe(id, buffer);
}

Result<bool> BlobFiles::write(const BlobId& id, const AlignedBuffer& bytes, const WriteMode& mode) {
  if (file_bytes(id) != 0) {
    utimensat(AT_FDCWD, path(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // it is somebody's: not abandoned
    return false;
  }
  const fs::path temporary = temporary_path();
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  FileDescriptor file = open_file(temporary, kFlags, mode.direct);
  // Somebody removed the folder; were its file system gone, writing would fill the one that it was mounted in.
  if (!file && errno == ENOENT && device_of(folder_) == device_) {
    SHALE_TRY(make_folders());
    file = open_file(temporary, kFlags, mode.direct);
  }
  if (!file) return system_failure(errno, "create", temporary);
  const auto written = [&]() -> Result<bool> {
    const AlignedBuffer tail = frame_tail(id, bytes.bytes());
    const auto whole_blocks = bytes.bytes().first(bytes.size() / kIoAlignment * kIoAlignment);
    SHALE_TRY(write_all(file.get(), whole_blocks, tail.bytes(), temporary));
    if (mode.sync && fsync(file.get()) != 0) return system_failure(errno, "synchronise", temporary);
    if (mode.drop_cached) posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    return publish(temporary, id, mode.sync);
  }();
  if (!written || !*written) unlink(temporary.c_str());
  return written;
}

Result<bool> BlobFiles::publish(const fs::path& temporary, const BlobId& id, bool sync) {
  const fs::path folder = object_folder(id.object);
  int error = rename_new(temporary, path(id));
  if (error == ENOENT && device_of(folder_) == device_)
    make_private_folder(folder_ / "objects");  // somebody removed it
  // Whoever removes an object's last blob removes its folder, perhaps between our making it and our using it.
  for (int attempt = 0; attempt < kPublishAttempts && error == ENOENT; ++attempt) {
    error = make_private_folder(folder.parent_path());
    if (error == 0) error = make_private_folder(folder);
    if (error == 0) error = rename_new(temporary, path(id));
  }
  if (error == EEXIST) return false;
  if (error != 0) return system_failure(error, "name", path(id));
  if (!sync) return true;
  if (Status synced = sync_folder(folder); !synced) {
    if (unlink(path(id).c_str()) != 0 && errno == ENOENT) return true;  // somebody removed it, and counts it
    return std::unexpected(std::move(synced).error());
  }
  return true;
}

Result<std::uint64_t> BlobFiles::remove(const BlobId& id) {
  // Taken away first and measured then, so that of several who remove and write at once each counts what it removed.
  const fs::path taken = temporary_path();
  const auto take = [&] { return rename(path(id).c_str(), taken.c_str()) == 0 ? 0 : errno; };
  int error = take();
  if (error == ENOENT && file_bytes(id) != 0) {  // somebody removed the folder that it is to go to
    SHALE_TRY(make_folders());
    error = take();
  }
  if (error == ENOENT) {
    SHALE_TRY(check_there());
    return 0;
  }
  if (error != 0) return system_failure(error, "remove", path(id));
  const std::uint64_t bytes = occupied_bytes(length(taken));
  if (unlink(taken.c_str()) != 0) {
    error = errno;
    rename(taken.c_str(), path(id).c_str());
    return system_failure(error, "remove", path(id));
  }
  rmdir(object_folder(id.object).c_str());  // fails, as it should, unless that was its last blob
  return bytes;
}

std::uint64_t BlobFiles::file_bytes(const BlobId& id) const { return occupied_bytes(length(path(id))); }

Result<std::vector<BlobId>> BlobFiles::list() const {
  std::vector<BlobId> ids;
  SHALE_TRY(for_each_entry(folder_ / "objects", [&](const fs::directory_entry& prefix) {
    return for_each_entry(prefix.path(), [&](const fs::directory_entry& folder) -> Status {
      const Result<Hash128> object = Hash128::parse(folder.path().filename().string());
      if (!object || object_folder(*object) != folder.path()) return {};
      SHALE_ASSIGN(const auto found, parts(*object));
      for (const std::uint32_t part : found) ids.push_back({*object, part});
      return {};
    });
  }));
  if (ids.empty()) SHALE_TRY(check_there());
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<std::vector<std::uint32_t>> BlobFiles::parts(const Hash128& object) const {
  std::vector<std::uint32_t> parts;
  SHALE_TRY(for_each_entry(object_folder(object), [&](const fs::directory_entry& file) -> Status {
    if (const auto part = parse_part(file.path().filename().string())) parts.push_back(*part);
    return {};
  }));
  if (parts.empty()) SHALE_TRY(check_there());
  return parts;
}

double BlobFiles::untouched_s(const BlobId& id) const { return seconds_since_change(path(id)); }

Result<std::uint64_t> BlobFiles::total_bytes() const {
  SHALE_ASSIGN(const auto ids, list());
  std::uint64_t total = 0;
  for (const BlobId& id : ids) total += file_bytes(id);
  return total;
}

void BlobFiles::remove_temporary(double older_than_s) {
  const auto remove_old = [&](const fs::directory_entry& entry) -> Status {
    std::error_code ignored;
    if (older_than_s <= 0 || seconds_since_change(entry.path()) >= older_than_s) fs::remove(entry.path(), ignored);
    return {};
  };
  for (std::uint64_t shard = 0; shard < kTemporaryFolders; ++shard) {
    (void)for_each_entry(temporary_folder(folder_, shard), remove_old);
  }
}

Status BlobFiles::remove_damaged() {
  SHALE_ASSIGN(const auto ids, list());
  for (const BlobId& id : ids) {
    if (const auto bytes = length(path(id)); bytes && !is_blob_length(*bytes)) SHALE_TRY(remove(id));
  }
  return {};
}

bool BlobFiles::supports_direct() const {
  const fs::path probe = temporary_path();
  const FileDescriptor file = open_direct(probe, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
  if (!file) return false;
  AlignedBuffer block(kIoAlignment);
  std::memset(block.data(), 0, block.size());
  const auto moved = static_cast<ssize_t>(block.size());
  const bool works = pwrite(file.get(), block.data(), block.size(), 0) == moved &&
                     pread(file.get(), block.data(), block.size(), 0) == moved;
  unlink(probe.c_str());
  return works;
}

}  // namespace shale
