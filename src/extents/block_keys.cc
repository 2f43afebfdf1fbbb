#include "extents/block_keys.h"

#include "core/sha256.h"

namespace shale {
namespace {

// CBOR in its deterministic form (RFC 8949, 4.2), of what keys are made of.
enum CborMajor : std::uint8_t { kUnsigned = 0, kNegative = 1, kBytes = 2, kText = 3, kArray = 4 };
constexpr std::byte kCborNull{0xf6};

class CborWriter {
 public:
  void head(CborMajor major, std::uint64_t argument) {
    const auto first = static_cast<std::uint8_t>(major << 5);
    if (argument < 24) return byte(first | static_cast<std::uint8_t>(argument));
    unsigned width = 0;  // 2^width bytes follow
    while (width < 3 && argument >> (8u << width) != 0) ++width;
    byte(static_cast<std::uint8_t>(first | (24 + width)));
    for (unsigned shift = 8u << width; shift > 0;) {
      shift -= 8;
      byte(static_cast<std::uint8_t>(argument >> shift));
    }
  }
  void number(std::int32_t value) {
    if (value < 0) return head(kNegative, static_cast<std::uint64_t>(-(std::int64_t{value} + 1)));
    head(kUnsigned, static_cast<std::uint64_t>(value));
  }
  void bytes(std::span<const std::byte> bytes) {
    head(kBytes, bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void text(std::string_view text) {
    head(kText, text.size());
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void null() { bytes_.push_back(kCborNull); }
  Sha256Digest digest() {
    const Sha256Digest digest = sha256(bytes_);
    bytes_.clear();
    return digest;
  }

 private:
  void byte(std::uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  std::vector<std::byte> bytes_;
};

std::vector<BlockKey> keys_after(BlockKey parent, std::span<const std::int32_t> tokens, std::uint32_t block_tokens,
                                 const KeyExtras& extras) {
  CborWriter cbor;
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / block_tokens);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    cbor.head(kArray, 3);
    cbor.bytes(parent);
    cbor.head(kArray, block_tokens);
    for (const std::int32_t token : tokens.first(block_tokens)) cbor.number(token);
    if (extras.empty()) {
      cbor.null();
    } else {
      cbor.head(kArray, extras.size());
      for (const std::string& extra : extras) cbor.text(extra);
    }
    keys.push_back(parent = cbor.digest());
  }
  return keys;
}

BlockKey before_first(std::string_view seed) {
  CborWriter cbor;
  cbor.text(seed);
  return cbor.digest();
}

}  // namespace

std::vector<BlockKey> block_keys(std::string_view seed, std::span<const std::int32_t> tokens,
                                 std::uint32_t block_tokens, const KeyExtras& extras) {
  return keys_after(before_first(seed), tokens, block_tokens, extras);
}

std::vector<BlockKey> block_keys_after(std::string_view seed, const BlockKey& parent,
                                       std::span<const std::int32_t> tokens, std::uint32_t block_tokens) {
  return keys_after(parent == BlockKey{} ? before_first(seed) : parent, tokens, block_tokens, {});
}

std::vector<BlockKey> lineage_keys(std::span<const BlockKey> keys, const Hash128& lineage) {
  std::vector<BlockKey> named;
  named.reserve(keys.size());
  for (const BlockKey& key : keys) {
    named.push_back(Sha256().add(key).add(std::as_bytes(std::span(&lineage, 1))).finish());
  }
  return named;
}

}  // namespace shale
