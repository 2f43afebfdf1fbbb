// none: binary16 as computed.
#include "quantizers/registry.h"
#include "quantizers/token_copy.h"

namespace shale {
namespace {

class None final : public Quantizer {
 public:
  std::string_view name() const override { return "none"; }
  double bits() const override { return 16; }
  std::uint32_t channel_multiple() const override { return 1; }

 private:
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const override {
    const std::size_t row_bytes = tokens * sizeof(Half);
    return {Plane{head_dim, row_bytes}, Plane{1, head_dim * row_bytes}};
  }

  // A block's bytes are laid out as a page of 32 tokens is.
  static KvRows<Half> rows_of(std::byte* bytes, std::uint32_t head_dim) {
    Half* keys = reinterpret_cast<Half*>(bytes);
    return {keys, keys + std::size_t{head_dim} * kBlockTokens, kBlockTokens, kBlockTokens, head_dim};
  }

  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead&) const override {
    copy_tokens(rows, 0, rows_of(out, rows.head_dim), 0, kBlockTokens);
  }

  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    const KvRows<Half> from = rows_of(const_cast<std::byte*>(in), rows.head_dim);
    copy_tokens({from.keys, from.values, from.key_stride, kBlockTokens, rows.head_dim}, 0, rows, 0, kBlockTokens);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_none(const CachegenTables*) { return std::make_unique<None>(); }

}  // namespace shale
