// What the disk tier and the directory tier share: blobs as files, I/O on threads that sleep.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/file_calls.h"
#include "io/io_threads.h"
#include "tier/pending.h"
#include "tier/tier.h"
#include "tiers/blob_files.h"
#include "tiers/folder_opening.h"

namespace shale {

struct FileTierOptions {
  std::string name;
  std::uint64_t capacity_bytes = kUnlimited;
  TierSpeed first_guess;
  bool shared = false;       // other processes write too: what they occupy is counted again where there is no room
  bool counts = true;        // what is stored; false: its owner says it by count_others()
  bool sync = false;         // on the device before a write counts
  bool drop_cached = false;  // leave nothing in the page cache
  unsigned threads = 8;      // for each of reads and writes; one of 256 KiB is mostly waiting
};

class FileTier final : public Tier {
 public:
  // The folder is open, or will be, or may never be: until then the tier is not reachable.
  FileTier(FileTierOptions options, OpenFolder folder, std::shared_ptr<BufferPool> buffers, const Clock& clock);
  FileTier(FileTierOptions options, std::unique_ptr<FolderOpening> opening, std::shared_ptr<BufferPool> buffers,
           const Clock& clock);
  ~FileTier() override;

  // Opens the folder by `open`: now, whose error it returns, or where `late` whenever that succeeds. A fault of the
  // folder that was named, and not of its storage, is an error all the same.
  static Result<std::unique_ptr<Tier>> make(FileTierOptions options, const std::filesystem::path& folder, bool late,
                                            const FolderOpening::Open& open, std::shared_ptr<BufferPool> buffers,
                                            const Clock& clock);

  Status reachable() const override;
  std::uint64_t capacity_bytes() const override;
  bool persistent() const override { return true; }
  bool read_only() const override;
  std::string describe() const override;
  std::uint64_t stored_bytes(std::uint64_t bytes) const override;
  double untouched_s(const BlobId& id) const override;
  std::optional<Error> trouble() const override;

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override;
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override;
  Result<std::uint64_t> remove_impl(const BlobId& id) override;
  Result<std::vector<BlobId>> list_impl() const override;
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override;
  std::uint64_t blob_bytes_impl(const BlobId& id) const override;
  bool count_again() override;
  // Called around a write and its being counted, or a removal. Whoever counts beside one may find what it changes too,
  // and count it twice: the last of them counts again.
  void begin_change();
  void end_change();
  bool counts_others() const { return options_.shared && options_.counts; }
  Result<bool> write_where_room(const OpenFolder& open, const BlobId& id, const AlignedBuffer& bytes,
                                const BlobFiles::WriteMode& mode);
  // Around a write whose room is reserved: kFull where there is less than was thought, because the folder is another
  // one than was counted.
  Status check_room(const OpenFolder& open);

  // Null until it is open.
  const OpenFolder* folder() const;
  void use(OpenFolder folder);
  std::unexpected<Error> not_open() const;

  const FileTierOptions options_;
  const std::shared_ptr<BufferPool> buffers_;
  std::unique_ptr<IoThreads> write_threads_;
  std::mutex opening_mutex_;                // guards what follows until opened_ is set; after that nothing changes it
  std::unique_ptr<FolderOpening> opening_;  // null once it is open
  OpenFolder folder_;
  std::unique_ptr<IoThreads> read_threads_;  // in place of its reader
  std::mutex counting_mutex_;
  // Guarded by it:
  std::optional<FileId> counted_;  // the folder that was
  bool room_in_doubt_ = false;     // more was promised to writes than another folder has
  std::atomic<bool> opened_ = false;
  std::atomic<std::uint64_t> changes_begun_ = 0, changes_in_flight_ = 0;
  std::atomic<bool> counted_beside_changes_ = false;
};

}  // namespace shale
