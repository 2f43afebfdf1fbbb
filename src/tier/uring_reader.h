// Reads whole blobs through io_uring: many requests in flight, one thread that sleeps in the kernel.
#pragma once

#include <functional>
#include <memory>

#include "tier/blob_files.h"

namespace shale {

// One thread of its own opens files, submits and reaps, so that neither page faults nor completions disturb whoever
// asked. Blobs are read in pieces, those of a blob and of blobs started after it in flight together.
class UringReader {
 public:
  // kUnsupported where the kernel or a sandbox refuses io_uring.
  static Result<std::unique_ptr<UringReader>> start(const BlobFiles& files, std::shared_ptr<BufferPool> buffers,
                                                    bool direct);
  ~UringReader();  // finishes what is under way

  // Thread-safe. `done` runs on the reader's thread and must not block or throw.
  using Done = std::function<void(Result<BlobBytes>)>;
  void read(const BlobId& id, Done done);

 private:
  class Loop;
  explicit UringReader(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace shale
