#include "codec/manifest_frame.h"

#include <fmt/ranges.h>

namespace shale {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'A', 'L', 'E', 'O', 'B', 'J'};
constexpr std::size_t kChecksumBytes = 16;
constexpr std::size_t kSizeAt = sizeof kMagic + sizeof(std::uint32_t);
constexpr std::size_t kPrologueBytes = kSizeAt + sizeof(std::uint64_t);

}  // namespace

// The size is known at the end.
ManifestWriter::ManifestWriter(std::uint32_t version) : bytes_(kPrologueBytes) {
  std::memcpy(bytes_.data(), kMagic, sizeof kMagic);
  std::memcpy(bytes_.data() + sizeof kMagic, &version, sizeof version);
}

AlignedBuffer ManifestWriter::finish() {
  const std::uint64_t size = bytes_.size() + kChecksumBytes;
  std::memcpy(bytes_.data() + kSizeAt, &size, sizeof size);
  hash(hash128(bytes_));
  AlignedBuffer buffer(bytes_.size());
  std::memcpy(buffer.data(), bytes_.data(), bytes_.size());
  return buffer;
}

Result<ManifestFrame> unframe_manifest(std::span<const std::byte> bytes, std::span<const std::uint32_t> versions) {
  if (bytes.size() < kPrologueBytes + kChecksumBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return corrupt_manifest("it does not begin as one");
  }
  ManifestReader prologue(bytes.subspan(sizeof kMagic));
  const auto version = prologue.number<std::uint32_t>();
  if (prologue.number<std::uint64_t>() != bytes.size()) return corrupt_manifest("its length is not what it says");
  const auto covered = bytes.first(bytes.size() - kChecksumBytes);
  if (ManifestReader(bytes.last(kChecksumBytes)).hash() != hash128(covered)) {
    return corrupt_manifest("its checksum is wrong");
  }
  if (std::ranges::count(versions, version) > 0) return ManifestFrame{version, covered.subspan(kPrologueBytes)};
  return fail(ErrorCode::kMismatch, "what is stored has format version {}, this reader knows {}", version,
              fmt::join(versions, " and "));
}

}  // namespace shale
