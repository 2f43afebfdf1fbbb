// Reads blobs through io_uring: many requests in flight, one thread that sleeps in the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tiers/blob_files.h"

namespace shale {

// What a completed read says of how many of its bytes are in place; the rest is to be asked for again. Reads end early
// where a signal or the page cache cuts them, and none by direct I/O ends inside a block but at the file's end.
// kCorrupt where the file ended, kIo.
Result<std::uint64_t> bytes_in_place(int result, bool direct);

// One thread of its own opens files, submits and reaps, so that neither page faults nor completions disturb whoever
// asked. Blobs are read in pieces, those of a blob and of blobs started after it in flight together.
class UringReader {
 public:
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  static constexpr std::size_t kPiecesInFlight = 32;

  // kUnsupported where the kernel or a sandbox refuses io_uring.
  static Result<std::unique_ptr<UringReader>> start(const BlobFiles& files, std::shared_ptr<BufferPool> buffers,
                                                    bool direct);
  ~UringReader();  // finishes what is in flight

  // Thread-safe. `done` runs on the reader's thread and must not block or throw.
  using Done = std::function<void(Result<BlobBytes>)>;
  void read(const BlobId& id, const BlobRange& range, Done done);  // of a range the whole blocks that hold it

 private:
  class Loop;
  explicit UringReader(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace shale
