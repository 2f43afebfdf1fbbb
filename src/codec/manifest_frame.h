// What manifests of all versions share: fields as little-endian numbers, and the frame around them, so that a reader
// can tell damage from a newer program.
//
//   manifest := "SHALEOBJ" version:u32 size:u64 … checksum:hash
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/error.h"
#include "core/hash.h"

namespace shale {

static_assert(std::endian::native == std::endian::little, "what is stored is little-endian");

inline std::unexpected<Error> corrupt_manifest(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "the manifest of an extent is damaged: {}", what);
}

class ManifestWriter {
 public:
  static constexpr std::uint32_t kTextMax = 1 << 10;

  explicit ManifestWriter(std::uint32_t version);

  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void hash(const Hash128& hash) {
    number(hash.high);
    number(hash.low);
  }
  void text(std::string_view text) { array(std::span(text.substr(0, kTextMax))); }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  template <class T>
  void array(std::span<const T> items) {
    number(static_cast<std::uint32_t>(items.size()));
    raw(std::as_bytes(items));
  }
  // Adds size and checksum.
  AlignedBuffer finish();

 private:
  std::vector<std::byte> bytes_;
};

// Reads past the end yield zeros and are recorded.
class ManifestReader {
 public:
  explicit ManifestReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    const auto from = raw(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  Hash128 hash() {
    const auto high = number<std::uint64_t>();
    return {high, number<std::uint64_t>()};
  }
  template <class T>
  std::vector<T> array(std::size_t most) {
    const auto count = number<std::uint32_t>();
    if (count > most) {
      short_ = true;
      return {};
    }
    return items<T>(count);
  }
  // As many as the reader knows that there are.
  template <class T>
  std::vector<T> items(std::size_t count) {
    const auto from = raw(count * sizeof(T));
    std::vector<T> items(from.size() / sizeof(T));
    if (!items.empty()) std::memcpy(items.data(), from.data(), from.size());
    return items;
  }
  std::string text() {
    const std::vector<char> characters = array<char>(ManifestWriter::kTextMax);
    return {characters.begin(), characters.end()};
  }
  std::span<const std::byte> raw(std::size_t count) {
    if (short_ || bytes_.size() - at_ < count) {
      short_ = true;
      return {};
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  std::size_t left() const { return short_ ? 0 : bytes_.size() - at_; }
  bool ended_exactly() const { return !short_ && at_ == bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool short_ = false;
};

struct ManifestFrame {
  std::uint32_t version = 0;
  std::span<const std::byte> body;
};
// kCorrupt for damage, kMismatch for a sound manifest of a version that is none of `versions`.
Result<ManifestFrame> unframe_manifest(std::span<const std::byte> bytes, std::span<const std::uint32_t> versions);

}  // namespace shale
