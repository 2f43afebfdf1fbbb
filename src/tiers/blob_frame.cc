#include "tiers/blob_frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace shale {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct Footer {
  char magic[8] = {'s', 'h', 'a', 'l', 'e', 'b', '0', '1'};
  std::uint64_t object_high = 0;
  std::uint64_t object_low = 0;
  std::uint64_t bytes = 0;
  std::uint32_t part = 0;
  std::uint32_t reserved = 0;
  std::uint64_t checksum = 0;  // low half of hash128 of all before it
};
static_assert(sizeof(Footer) == kBlobFooterBytes);

Footer make_footer(const BlobId& id, std::uint64_t bytes) {
  Footer footer;
  footer.object_high = id.object.high;
  footer.object_low = id.object.low;
  footer.bytes = bytes;
  footer.part = id.part;
  footer.checksum = hash128(std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, checksum))).low;
  return footer;
}

}  // namespace

AlignedBuffer frame_tail(const BlobId& id, std::span<const std::byte> blob) {
  const std::size_t whole = blob.size() / kIoAlignment * kIoAlignment;
  AlignedBuffer tail(framed_bytes(blob.size()) - whole);
  std::memset(tail.data(), 0, tail.size());
  std::ranges::copy(blob.subspan(whole), tail.data());
  const Footer footer = make_footer(id, blob.size());
  std::memcpy(tail.data() + tail.size() - sizeof footer, &footer, sizeof footer);
  return tail;
}

Result<std::uint64_t> blocks_end(const BlobId& id, const BlobRange& range, std::uint64_t file_bytes) {
  if (range.whole()) return file_bytes;
  const std::uint64_t blob_bytes_max = file_bytes - std::min<std::uint64_t>(file_bytes, kBlobFooterBytes);
  if (range.offset > blob_bytes_max || range.bytes > blob_bytes_max - range.offset) {
    return fail(ErrorCode::kCorrupt, "{}: a file of {} bytes cannot hold {} bytes from {} on", to_string(id),
                file_bytes, range.bytes, range.offset);
  }
  return round_up(std::max<std::uint64_t>(range.offset + range.bytes, first_block(range) + 1), kIoAlignment);
}

Result<std::uint64_t> framed_length(const BlobId& id, std::span<const std::byte> last_block, std::uint64_t file_bytes) {
  Footer footer;
  std::memcpy(&footer, last_block.last(sizeof footer).data(), sizeof footer);
  const Footer expected = make_footer(id, footer.bytes);
  if (std::memcmp(&footer, &expected, sizeof footer) != 0) {
    return fail(ErrorCode::kCorrupt, "{}: its file does not end in this blob's footer", to_string(id));
  }
  if (footer.bytes > file_bytes || framed_bytes(footer.bytes) != file_bytes) {
    return fail(ErrorCode::kCorrupt, "{}: a file of {} bytes claims to hold {}", to_string(id), file_bytes,
                footer.bytes);
  }
  return footer.bytes;
}

Result<BlobBytes> unframe(const BlobId& id, std::shared_ptr<AlignedBuffer> file) {
  const std::size_t file_bytes = file->size();
  if (file_bytes == 0 || file_bytes % kIoAlignment != 0) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes is not the length of a blob's file", to_string(id), file_bytes);
  }
  SHALE_ASSIGN(const std::uint64_t length, framed_length(id, file->bytes().last(kIoAlignment), file_bytes));
  const auto padding = file->bytes().subspan(length, file_bytes - kBlobFooterBytes - length);
  if (std::ranges::any_of(padding, [](std::byte byte) { return byte != std::byte{0}; })) {
    return fail(ErrorCode::kCorrupt, "{}: the padding after its {} bytes is not zero", to_string(id), length);
  }
  file->resize(length);
  return file;
}

}  // namespace shale
