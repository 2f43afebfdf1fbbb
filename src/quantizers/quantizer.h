// A quantizer turns keys and values of one (layer, KV head) into fewer bytes and back, named as the registry names it.
// One file each, or one for all widths of the same code. The bytes: docs/formats/quantizers.md.
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
#include "core/hash.h"

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
// Two spans of head_dim lines of 64 bytes; null for nothing.
struct Ahead {
  const std::byte* first = nullptr;
  const std::byte* second = nullptr;
};

// Codes of a run of tokens. A quantizer whose bits nest puts its coarse codes in `base`, which another quantizer
// decodes alone (of layered, layered2), and what makes them finer in `refinement`; all others have a base only.
template <class Byte>
struct Codes {
  std::span<Byte> base;
  std::span<Byte> refinement = {};
};

// Thread-safe.
class Quantizer {
 public:
  virtual ~Quantizer() = default;
  virtual std::string_view name() const = 0;
  virtual double bits() const = 0;  // nominal bits per stored element
  // Whether it codes as meant only with tables of the model; without them it has generic ones.
  virtual bool needs_tables() const { return false; }
  // The quantizer for the keys and values of head number `index` = layer · kv_heads + head; good as long as this.
  virtual const Quantizer& of_head(std::uint32_t /*index*/) const { return *this; }
  // head_dim must be a multiple of it.
  virtual std::uint32_t channel_multiple() const { return 32; }

  std::size_t base_bytes(std::uint32_t tokens, std::uint32_t head_dim) const;
  std::size_t refinement_bytes(std::uint32_t tokens, std::uint32_t head_dim) const;  // 0 where bits do not nest
  // `out` has base_bytes() and refinement_bytes(). Elements that share a scale with a NaN or an infinity decode to
  // anything.
  void encode(const KvRows<const Half>& rows, const Codes<std::byte>& out, const Ahead& ahead = {}) const;
  // `in` has as much. Any bytes decode to something finite or not, never to undefined behaviour.
  void decode(const Codes<const std::byte>& in, const KvRows<Half>& rows) const;

  // Quantizers whose codes are not equally likely store them packed, in as many bytes as they turn out to take.
  virtual bool packs() const { return false; }
  // The hash of the tables that packing goes by; zero: generic ones.
  virtual Hash128 tables() const { return {}; }
  virtual std::size_t packed_bytes_max(std::uint32_t /*tokens*/, std::uint32_t /*head_dim*/) const { return 0; }
  // `codes`, of base_bytes(), packed: appended to `out`.
  virtual void pack(std::span<const std::byte> /*codes*/, std::uint32_t /*tokens*/, std::uint32_t /*head_dim*/,
                    std::vector<std::byte>& /*out*/) const {}
  // The reverse; false for bytes that nothing was packed to, and `codes` is then anything.
  virtual bool unpack(std::span<const std::byte> /*packed*/, std::uint32_t /*tokens*/, std::uint32_t /*head_dim*/,
                      std::span<std::byte> /*codes*/) const {
    return false;
  }

 protected:
  // An encoded block is a sequence of planes, each `rows` rows of `row_bytes`. A short block has the same planes with
  // fewer rows, or with rows that are the beginnings of the full block's.
  struct Plane {
    std::size_t rows = 0, row_bytes = 0;
  };
  using Planes = std::array<Plane, 6>;  // unused ones have no rows

 private:
  virtual Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const = 0;
  virtual Planes refinement_planes(std::uint32_t, std::uint32_t) const { return {}; }
  // One full block. `ahead` is never null here. `refinement` is null for quantizers that have none.
  virtual void encode_block(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement,
                            const Ahead& ahead) const = 0;
  virtual void decode_block(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const = 0;

  void encode_tail(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement) const;
  void decode_tail(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const;
};

// Cuts what `tokens` tokens need off the front of `from`.
inline Codes<std::byte> take_codes(const Quantizer& quantizer, std::uint32_t tokens, std::uint32_t head_dim,
                                   Codes<std::byte>& from) {
  const std::size_t base = quantizer.base_bytes(tokens, head_dim);
  const std::size_t refinement = quantizer.refinement_bytes(tokens, head_dim);
  const Codes<std::byte> taken{from.base.first(base), from.refinement.first(refinement)};
  from = {from.base.subspan(base), from.refinement.subspan(refinement)};
  return taken;
}

class CachegenTables;

std::vector<std::string_view> quantizer_names();  // alphabetical, "none" among them
// kInvalidArgument names the known ones. `tables`, for quantizers that need them, must outlive what is made.
Result<std::unique_ptr<Quantizer>> make_quantizer(std::string_view name, const CachegenTables* tables = nullptr);

}  // namespace shale
