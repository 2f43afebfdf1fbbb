// What the disk tier and the directory tier share: blobs as files, I/O on threads that sleep.
#pragma once

#include <memory>
#include <string>

#include "tier/blob_files.h"
#include "tier/io_threads.h"
#include "tier/pending.h"
#include "tier/tier.h"
#include "tier/uring_reader.h"

namespace shale {

struct FileTierOptions {
  std::string name;
  std::uint64_t capacity_bytes = kUnlimited;
  TierSpeed first_guess;
  std::string describe;
  bool read_only = false;
  bool shared = false;  // other processes write too: what they occupy is counted again before refusing for lack of room
  bool counts = true;   // what is stored; false: its owner says it by count_others()
  BlobFiles::WriteMode write_mode;
  bool direct_reads = false;
  unsigned threads = 8;  // for each of reads and writes; one of 256 KiB is mostly waiting
};

class FileTier final : public Tier {
 public:
  // `lock`: held as long as the tier lives. `reader`: used for reads where given, else threads.
  FileTier(FileTierOptions options, std::unique_ptr<BlobFiles> files, FileDescriptor lock,
           std::shared_ptr<BufferPool> buffers, std::unique_ptr<UringReader> reader, const Clock& clock);
  ~FileTier() override;

  bool persistent() const override { return true; }
  bool read_only() const override { return options_.read_only; }
  std::string describe() const override { return options_.describe; }
  std::uint64_t stored_bytes(std::uint64_t bytes) const override;
  double untouched_s(const BlobId& id) const override;

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override;
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override;
  Result<std::uint64_t> remove_impl(const BlobId& id) override { return files_->remove(id); }
  Result<std::vector<BlobId>> list_impl() const override { return files_->list(); }
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override { return files_->parts(object); }
  std::uint64_t blob_bytes_impl(const BlobId& id) const override { return files_->file_bytes(id); }
  bool count_again() override;

  const FileTierOptions options_;
  const std::unique_ptr<BlobFiles> files_;
  const FileDescriptor lock_;
  const std::shared_ptr<BufferPool> buffers_;
  std::unique_ptr<UringReader> reader_;
  std::unique_ptr<IoThreads> read_threads_;  // in its place
  std::unique_ptr<IoThreads> write_threads_;
};

}  // namespace shale
