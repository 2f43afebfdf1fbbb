#include "tiers/uring_reader.h"

#include <liburing.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "io/io_threads.h"
#include "tiers/blob_frame.h"

namespace shale {
namespace {

constexpr std::uint64_t kPieceBytes = UringReader::kPieceBytes;
constexpr std::size_t kPiecesInFlight = UringReader::kPiecesInFlight;
constexpr std::uint64_t kWakeTag = kPiecesInFlight;  // user_data of the read that new requests complete

}  // namespace

Result<std::uint64_t> bytes_in_place(int result, bool direct) {
  if (result == -EINTR || result == -EAGAIN) return 0;
  if (result < 0) return fail(ErrorCode::kIo, "cannot be read: {}", std::strerror(-result));
  auto bytes = static_cast<std::uint64_t>(result);
  if (direct) bytes -= bytes % kIoAlignment;
  if (bytes == 0) return fail(ErrorCode::kCorrupt, "its file ends before its length");
  return bytes;
}

class UringReader::Loop {
 public:
  Loop(const BlobFiles& files, std::shared_ptr<BufferPool> buffers, bool direct)
      : files_(files), buffers_(std::move(buffers)), direct_(direct) {
    for (std::size_t slot = 0; slot < kPiecesInFlight; ++slot) free_slots_.push_back(slot);
  }

  ~Loop() {
    if (thread_.joinable()) {
      push({});
      thread_.join();
    }
    if (ring_ready_) io_uring_queue_exit(&ring_);
  }

  Status start() {
    wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
    if (!wake_) return fail(ErrorCode::kIo, "cannot create an eventfd: {}", std::strerror(errno));
    if (const int error = -io_uring_queue_init(2 * kPiecesInFlight, &ring_, 0); error != 0) {
      return fail(ErrorCode::kUnsupported, "io_uring is refused: {}", std::strerror(error));
    }
    ring_ready_ = true;
    thread_ = std::jthread([this] {
      stand_back(StandBack::kForReads);
      run();
    });
    return {};
  }

  // A request without `done` ends the loop.
  struct Request {
    BlobId id;
    BlobRange range;
    Done done;
  };
  void push(Request request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
    }
    eventfd_write(wake_.get(), 1);
  }

 private:
  struct Blob {
    Request request;
    FileDescriptor file;
    std::shared_ptr<AlignedBuffer> buffer;
    std::uint64_t file_offset = 0;  // of the buffer's first byte
    std::uint64_t next_offset = 0;  // in the buffer, of the first byte not asked for
    std::size_t pieces_in_flight = 0;
    Status status;
  };
  struct Piece {
    std::shared_ptr<Blob> blob;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  void run() {
    wait_for_wake();
    for (;;) {
      fill();
      if (closing_ && free_slots_.size() == kPiecesInFlight) return;
      // Out of kernel memory for a moment: nothing is lost, entries stay queued.
      if (const int count = io_uring_submit_and_wait(&ring_, 1); count < 0 && count != -EINTR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        const std::uint64_t tag = completion->user_data;
        const int result = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        if (tag == kWakeTag) {
          accept_requests();
        } else {
          finish_piece(tag, result);
        }
      }
    }
  }

  void wait_for_wake() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, wake_.get(), &wake_count_, sizeof wake_count_, 0);
    io_uring_sqe_set_data64(entry, kWakeTag);
  }

  void accept_requests() {
    const std::lock_guard lock(mutex_);
    for (Request& request : requests_) {
      if (request.done) {
        waiting_.push_back(std::move(request));
      } else {
        closing_ = true;
      }
    }
    requests_.clear();
    if (!closing_) wait_for_wake();
  }

  // Asks for pieces, of one blob after the other, while slots are free.
  void fill() {
    while (!free_slots_.empty()) {
      if (!current_ && !open_next()) return;
      const std::uint64_t bytes = std::min(kPieceBytes, current_->buffer->size() - current_->next_offset);
      submit({current_, current_->next_offset, bytes});
      current_->next_offset += bytes;
      if (current_->next_offset == current_->buffer->size()) current_.reset();
    }
  }

  bool open_next() {
    while (!waiting_.empty()) {
      Request request = std::move(waiting_.front());
      waiting_.pop_front();
      auto blob = no_memory_is_an_error([&] { return open(request); });
      if (!blob) {
        request.done(std::unexpected(blob.error()));
        continue;
      }
      current_ = std::move(*blob);
      current_->request = std::move(request);
      return true;
    }
    return false;
  }

  Result<std::shared_ptr<Blob>> open(const Request& request) {
    SHALE_ASSIGN(auto opened, files_.open_blob(request.id, direct_));
    SHALE_ASSIGN(const std::uint64_t end, blocks_end(request.id, request.range, opened.file_bytes));
    auto blob = std::make_shared<Blob>();
    blob->file_offset = first_block(request.range);
    blob->buffer = buffers_->get(end - blob->file_offset);
    blob->file = std::move(opened.file);
    return blob;
  }

  void submit(Piece piece) {
    const std::size_t slot = free_slots_.back();
    free_slots_.pop_back();
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // there are more entries than slots
    io_uring_prep_read(entry, piece.blob->file.get(), piece.blob->buffer->data() + piece.offset,
                       static_cast<unsigned>(piece.bytes), piece.blob->file_offset + piece.offset);
    io_uring_sqe_set_data64(entry, slot);
    ++piece.blob->pieces_in_flight;
    pieces_[slot] = std::move(piece);
  }

  void finish_piece(std::size_t slot, int result) {
    const Piece piece = std::exchange(pieces_[slot], {});
    free_slots_.push_back(slot);
    Blob& blob = *piece.blob;
    --blob.pieces_in_flight;
    if (const auto bytes = bytes_in_place(result, direct_); !bytes) {
      blob.status = fail_in(to_string(blob.request.id), bytes.error());
    } else if (*bytes < piece.bytes) {
      submit({piece.blob, piece.offset + *bytes, piece.bytes - *bytes});
      return;
    }
    if (blob.pieces_in_flight > 0 || blob.next_offset < blob.buffer->size()) return;
    blob.file = FileDescriptor();  // so that whoever removes it now has its room
    if (!blob.status) {
      blob.request.done(std::unexpected(blob.status.error()));
    } else if (blob.request.range.whole()) {
      blob.request.done(unframe(blob.request.id, std::move(blob.buffer)));
    } else {
      blob.request.done(std::move(blob.buffer));
    }
  }

  const BlobFiles& files_;
  const std::shared_ptr<BufferPool> buffers_;
  const bool direct_;
  FileDescriptor wake_;
  eventfd_t wake_count_ = 0;
  io_uring ring_ = {};
  bool ring_ready_ = false;

  std::mutex mutex_;  // guards requests_; all else is the thread's
  std::vector<Request> requests_;

  std::deque<Request> waiting_;
  std::shared_ptr<Blob> current_;  // the blob whose pieces are not all asked for
  std::array<Piece, kPiecesInFlight> pieces_;
  std::vector<std::size_t> free_slots_;
  bool closing_ = false;
  std::jthread thread_;
};

UringReader::UringReader(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
UringReader::~UringReader() = default;

Result<std::unique_ptr<UringReader>> UringReader::start(const BlobFiles& files, std::shared_ptr<BufferPool> buffers,
                                                        bool direct) {
  auto loop = std::make_unique<Loop>(files, std::move(buffers), direct);
  SHALE_TRY(loop->start());
  return std::unique_ptr<UringReader>(new UringReader(std::move(loop)));
}

void UringReader::read(const BlobId& id, const BlobRange& range, Done done) {
  loop_->push({id, range, std::move(done)});
}

}  // namespace shale
