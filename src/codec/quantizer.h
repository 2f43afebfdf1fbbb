// A quantizer turns keys and values of one (layer, KV head) into fewer bytes and back. One file each, named as the
// registry names it. The bytes: docs/formats/quantizers.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/half.h"

namespace shale {

// Tokens are coded in blocks of so many; what shares a scale lies within one block. Only the last block of a run is
// shorter. Encoding can be cut at multiples.
inline constexpr std::uint32_t kBlockTokens = 32;

// Keys and values of `tokens` tokens of one head, laid out as pages are: keys one row a channel (rows `key_stride`
// elements apart), values one row a token.
template <class Element>
struct KvRows {
  Element* keys = nullptr;    // [head_dim][key_stride], the first `tokens` of each row
  Element* values = nullptr;  // [tokens][head_dim]
  std::size_t key_stride = 0;
  std::uint32_t tokens = 0;
  std::uint32_t head_dim = 0;
};

// What is read after a block: asked for line by line while the block is encoded, so that memory and arithmetic overlap.
// Two stretches of head_dim lines of 64 bytes; null for nothing.
struct Ahead {
  const std::byte* first = nullptr;
  const std::byte* second = nullptr;
};

// Thread-safe.
class Quantizer {
 public:
  virtual ~Quantizer() = default;
  virtual std::string_view name() const = 0;
  virtual double bits() const = 0;  // nominal bits per stored element
  // head_dim must be a multiple of it.
  virtual std::uint32_t channel_multiple() const { return 32; }

  std::size_t encoded_bytes(std::uint32_t tokens, std::uint32_t head_dim) const;
  // `out` has encoded_bytes(). Elements that share a scale with a NaN or an infinity decode to anything.
  void encode(const KvRows<const Half>& rows, std::span<std::byte> out, const Ahead& ahead = {}) const;
  // Any bytes of the right length decode to something finite or not, never to undefined behaviour.
  void decode(std::span<const std::byte> in, const KvRows<Half>& rows) const;

 protected:
  // An encoded block is a sequence of planes, each `rows` rows of `row_bytes`. A short block has the same planes with
  // fewer rows, or with rows that are the beginnings of the full block's.
  struct Plane {
    std::size_t rows = 0, row_bytes = 0;
  };
  using Planes = std::array<Plane, 6>;  // unused ones have no rows

 private:
  virtual Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const = 0;
  // One full block. `ahead` is never null here.
  virtual void encode_block(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) const = 0;
  virtual void decode_block(const std::byte* in, const KvRows<Half>& rows) const = 0;

  std::size_t block_bytes(std::uint32_t tokens, std::uint32_t head_dim) const;
  void encode_tail(const KvRows<const Half>& rows, std::byte* out) const;
  void decode_tail(const std::byte* in, const KvRows<Half>& rows) const;
};

std::vector<std::string_view> quantizer_names();  // alphabetical, "none" among them
// kInvalidArgument names the known ones.
Result<std::unique_ptr<Quantizer>> make_quantizer(std::string_view name);

}  // namespace shale
