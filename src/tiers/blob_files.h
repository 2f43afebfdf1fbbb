// Blobs as files under one folder, by content-named path (docs/formats/disk.md). Everything here blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer_pool.h"
#include "core/error.h"
#include "io/file_calls.h"
#include "tier/tier.h"

namespace shale {

// "0000002a" or "manifest": what a part is called in its object's folder; none where nothing is called so.
std::string part_name(std::uint32_t part);
std::optional<std::uint32_t> parse_part(std::string_view name);

// Thread-safe. Several processes may use the same folder at once: files appear whole, by rename, and never change.
class BlobFiles {
 public:
  // Creates what is missing of the folder: mode 0700, files 0600. kInvalidArgument where it belongs to another user, or
  // everybody may replace what lies in it.
  static Result<std::unique_ptr<BlobFiles>> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }

  struct OpenBlob {
    FileDescriptor file;
    std::uint64_t file_bytes = 0;
  };
  // kNotFound; kIo, also where the folder's file system is not mounted any more, as for all that follows; kCorrupt
  // where its length cannot be that of a blob or, being large, is not what its footer says: a forged length must not
  // decide how much memory a read takes.
  Result<OpenBlob> open_blob(const BlobId& id, bool direct) const;
  // The blob, or the whole blocks that hold the range.
  Result<BlobBytes> read(const BlobId& id, const BlobRange& range, bool direct, BufferPool& buffers) const;

  struct WriteMode {
    bool direct = false;
    bool sync = false;         // on the device before the name appears
    bool drop_cached = false;  // leave nothing in the page cache
  };
  // False when the blob was there already, which then counts as touched. Makes the folder again where somebody removed
  // it, but not where its file system is gone. An error leaves nothing behind; where synchronising the folder failed,
  // the name is taken away again. kFull when the device or quota is full.
  Result<bool> write(const BlobId& id, const AlignedBuffer& bytes, const WriteMode& mode);

  // The bytes that it occupied; 0 when there was none.
  Result<std::uint64_t> remove(const BlobId& id);
  std::uint64_t file_bytes(const BlobId& id) const;  // whole blocks; 0 when absent
  Result<std::vector<BlobId>> list() const;          // sorted
  Result<std::vector<std::uint32_t>> parts(const Hash128& object) const;
  Result<std::uint64_t> total_bytes() const;
  double untouched_s(const BlobId& id) const;  // since it was written or found there by a write; 0 when absent

  // Removes temporary files that have not changed for that long.
  void remove_temporary(double older_than_s);
  // Removes files whose length cannot be that of a blob: what a crash of the machine leaves. Only a sole writer may
  // call it.
  Status remove_damaged();

  // Whether the file system takes direct I/O; writes and removes a temporary file.
  bool supports_direct() const;

 private:
  explicit BlobFiles(std::filesystem::path folder);
  Status make_folders() const;
  // What is not found is missing; kIo where everything is, for its file system is gone.
  Status check_there() const;

  std::filesystem::path object_folder(const Hash128& object) const;
  std::filesystem::path path(const BlobId& id) const;
  std::filesystem::path temporary_path() const;
  Result<bool> publish(const std::filesystem::path& temporary, const BlobId& id, bool sync);
  Status check_footer(const BlobId& id, const OpenBlob& blob) const;

  const std::filesystem::path folder_;
  std::uint64_t device_ = 0;
  const std::string session_;  // distinguishes temporary files of all writers
  mutable std::atomic<std::uint64_t> temporaries_ = 0;
};

}  // namespace shale
