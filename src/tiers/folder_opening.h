// Opens a folder where that may fail, or never come back: on a thread of its own, again and again until it is open.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/error.h"
#include "io/file_calls.h"
#include "tiers/blob_files.h"
#include "tiers/uring_reader.h"

namespace shale {

// A folder that is open, and how it is read and written.
struct OpenFolder {
  std::unique_ptr<BlobFiles> files;
  FileDescriptor lock;                  // held as long as it is open
  std::unique_ptr<UringReader> reader;  // used for reads where given, else threads
  bool direct = false;                  // by direct I/O
  bool read_only = false;
  std::uint64_t stored_bytes = 0;      // as counted when it was opened; 0 where its owner counts
  std::optional<FileId> counted = {};  // the folder that was
  std::string describe;
};

class FolderOpening {
 public:
  using Open = std::function<Result<OpenFolder>()>;

  // Begins at once. `open` is called by one thread at a time, perhaps after this is gone: it refers to nothing.
  FolderOpening(std::filesystem::path folder, Open open, double again_after_s = 5);
  // Does not wait for a call that is in flight; what it opens is closed.
  ~FolderOpening();

  // Waits until the first attempt has ended, so long at most.
  void wait(double patience_s);
  // What was opened, once; nothing before it is.
  std::optional<OpenFolder> take();
  // Why it is not open: what the last attempt failed of, or that it does not come back.
  Error trouble() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace shale
