#include "tier/file_tier.h"

#include <utility>

#include "tier/blob_frame.h"

namespace shale {

FileTier::FileTier(FileTierOptions options, std::unique_ptr<BlobFiles> files, FileDescriptor lock,
                   std::shared_ptr<BufferPool> buffers, std::unique_ptr<UringReader> reader, const Clock& clock)
    : Tier({options.name, options.capacity_bytes, options.first_guess}, clock),
      options_(std::move(options)),
      files_(std::move(files)),
      lock_(std::move(lock)),
      buffers_(std::move(buffers)),
      reader_(std::move(reader)),
      read_threads_(reader_ ? nullptr : std::make_unique<IoThreads>(options_.threads, StandBack::kForReads)),
      write_threads_(std::make_unique<IoThreads>(options_.threads, StandBack::kForWrites)) {
  if (options_.counts) count_stored([this] { return files_->total_bytes(); });
}

// Operations under way end here, while all that they use still lives.
FileTier::~FileTier() {
  reader_.reset();
  read_threads_.reset();
  write_threads_.reset();
}

std::uint64_t FileTier::stored_bytes(std::uint64_t bytes) const { return framed_bytes(bytes); }

std::shared_ptr<TierRead> FileTier::read_impl(const BlobId& id, const BlobRange& range, double start_s) {
  auto read = std::make_shared<PendingRead>(first_block(range));
  const auto finish = [this, read, range, start_s](Result<BlobBytes> result) {
    const double seconds = clock_.now_s() - start_s;
    finished_read(start_s, seconds, result, range);
    read->complete(std::move(result), seconds);
  };
  if (reader_) {
    reader_->read(id, range, finish);
  } else {
    read_threads_->run([this, id, range, finish] {
      finish(no_memory_is_an_error([&] { return files_->read(id, range, options_.direct_reads, *buffers_); }));
    });
  }
  return read;
}

std::shared_ptr<TierWrite> FileTier::write_impl(const BlobId& id, BlobBytes bytes, double start_s) {
  auto write = std::make_shared<PendingWrite>();
  write_threads_->run([this, id, bytes = std::move(bytes), write, start_s] {
    Result<bool> stored = no_memory_is_an_error([&] { return files_->write(id, *bytes, options_.write_mode); });
    const double seconds = clock_.now_s() - start_s;
    const Status status = stored ? Status() : std::unexpected(stored.error());
    finished_write(start_s, seconds, bytes->size(), stored.value_or(false), status);
    write->complete(std::move(stored), seconds);
  });
  return write;
}

double FileTier::untouched_s(const BlobId& id) const {
  return options_.shared ? files_->untouched_s(id) : Tier::untouched_s(id);
}

bool FileTier::count_again() {
  return options_.shared && options_.counts && count_stored([this] { return files_->total_bytes(); });
}

}  // namespace shale
