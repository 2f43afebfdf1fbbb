#include "tiers/s3/s3_read.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/parsing.h"
#include "io/io_threads.h"
#include "tiers/blob_frame.h"

namespace shale {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;       // of a request
constexpr std::uint64_t kObjectBytesMax = std::uint64_t{4} << 30;  // longer than any blob

// What of an object an answer brings.
struct Brought {
  std::uint64_t first = 0;
  std::uint64_t object_bytes = 0;
};

// Reads "bytes 0-4095/8192"; or, where the server knows no ranges, all of the object.
std::optional<Brought> brought_by(const HttpHead& head) {
  if (head.status == 200) {
    const auto length = parse_integer<std::uint64_t>(head.header("content-length"));
    return length ? std::optional(Brought{0, *length}) : std::nullopt;
  }
  std::string_view range = head.header("content-range");
  if (!range.starts_with("bytes ")) return std::nullopt;
  range.remove_prefix(6);
  const std::size_t dash = std::min(range.find('-'), range.size()), slash = std::min(range.find('/'), range.size() - 1);
  const auto first = parse_integer<std::uint64_t>(range.substr(0, dash)),
             total = parse_integer<std::uint64_t>(range.substr(slash + 1));
  return first && total ? std::optional(Brought{*first, *total}) : std::nullopt;
}

class S3Read : public std::enable_shared_from_this<S3Read> {
 public:
  S3Read(S3Client& client, std::shared_ptr<BufferPool> buffers, std::string key, const BlobId& id,
         const BlobRange& range, std::function<void(Result<BlobBytes>)> done)
      : client_(client),
        buffers_(std::move(buffers)),
        key_(std::move(key)),
        id_(id),
        range_(range),
        done_(std::move(done)) {}

  // The first answer says how long the object is; then the rest is asked for.
  void start() {
    in_flight_ = 1;
    const std::uint64_t bytes = range_.whole() ? kPartBytes : std::clamp<std::uint64_t>(range_.bytes, 1, kPartBytes);
    ask(std::min(range_.offset, kObjectBytesMax), bytes);
  }

 private:
  struct Part {
    std::uint64_t next = 0;             // byte of the object that is to come
    std::uint64_t end = 0;              // behind the last one
    std::optional<std::uint64_t> at{};  // byte that comes next in this attempt's answer
  };

  void ask(std::uint64_t first, std::uint64_t bytes) {
    auto part = std::make_shared<Part>(Part{first, first + bytes});
    S3Call call;
    call.lane = HttpLane::kReads;
    call.key = key_;
    call.range = [part] {
      part->at.reset();
      return fmt::format("bytes={}-{}", part->next, part->end - 1);
    };
    call.take = [self = shared_from_this(), part](const HttpHead& head, std::span<const std::byte> bytes_come) {
      return self->take(*part, head, bytes_come);
    };
    call.done = [self = shared_from_this(), part](const Result<HttpAnswer>& answer) { self->end(*part, answer); };
    client_.start(std::move(call));
  }

  bool take(Part& part, const HttpHead& head, std::span<const std::byte> bytes) {
    if (!part.at) {
      const auto brought = brought_by(head);
      if (!brought || brought->first > part.next) return give_up("what it answered is not what it was asked for");
      if (!buffer_ && !place(part, *brought, head.status == 200)) return false;
      if (brought->object_bytes != object_bytes_) return give_up("its length changed while it was read");
      part.at = brought->first;
    }
    const std::uint64_t skip = std::min<std::uint64_t>(part.next - *part.at, bytes.size());
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size() - skip, part.end - part.next);
    if (count > 0) std::memcpy(buffer_->data() + (part.next - range_.offset), bytes.data() + skip, count);
    part.next += count;
    *part.at += bytes.size();
    return !failure_ && (part.next < part.end || skip + count == bytes.size());
  }

  // Allocates the buffer, and asks for what the first part leaves.
  bool place(Part& first, const Brought& brought, bool brings_all) {
    object_bytes_ = brought.object_bytes;
    if (object_bytes_ > kObjectBytesMax) return give_up("it is too long for a blob");
    const auto blocks = blocks_end(id_, range_, object_bytes_);
    if (!blocks) return fail_by(blocks.error());
    const std::uint64_t end = range_.whole() ? object_bytes_ : range_.offset + range_.bytes;
    Result<std::shared_ptr<AlignedBuffer>> buffer = no_memory_is_an_error([&] {
      return Result<std::shared_ptr<AlignedBuffer>>(buffers_->get(std::max(end - range_.offset, std::uint64_t{1})));
    });
    if (!buffer) return fail_by(buffer.error());
    buffer_ = std::move(*buffer);
    buffer_->resize(end - range_.offset);
    first.end = brings_all ? end : std::min(first.end, end);
    for (std::uint64_t at = first.end; at < end; at += kPartBytes) {
      ++in_flight_;
      ask(at, std::min(kPartBytes, end - at));
    }
    return true;
  }

  void end(const Part& part, const Result<HttpAnswer>& answer) {
    if (!answer) {
      fail_by(answer.error());
    } else if (answer->head.status == 404) {
      fail_by({ErrorCode::kNotFound, fmt::format("{} is not in {}", key_, client_.place())});
    } else if (answer->head.status == 416 || part.next < part.end) {
      give_up("it is shorter than it was written");
    }
    if (--in_flight_ > 0) return;
    if (failure_) return done_(std::unexpected(*failure_));
    done_(range_.whole() ? unframe(id_, std::move(buffer_)) : Result<BlobBytes>(std::move(buffer_)));
  }

  bool give_up(std::string_view what) {
    return fail_by({ErrorCode::kCorrupt, fmt::format("{} in {}: {}", key_, client_.place(), what)});
  }

  bool fail_by(Error error) {
    if (!failure_) failure_ = std::move(error);
    return false;
  }

  S3Client& client_;
  const std::shared_ptr<BufferPool> buffers_;
  const std::string key_;
  const BlobId id_;
  const BlobRange range_;
  const std::function<void(Result<BlobBytes>)> done_;
  // Only the client's thread uses:
  std::size_t in_flight_ = 0;
  std::uint64_t object_bytes_ = 0;
  std::shared_ptr<AlignedBuffer> buffer_;  // null until the object's length is known
  std::optional<Error> failure_;           // the first
};

}  // namespace

void read_s3_blob(S3Client& client, const std::shared_ptr<BufferPool>& buffers, std::string key, const BlobId& id,
                  const BlobRange& range, std::function<void(Result<BlobBytes>)> done) {
  std::make_shared<S3Read>(client, buffers, std::move(key), id, range, std::move(done))->start();
}

}  // namespace shale
