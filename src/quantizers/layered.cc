// layered: 4 bits that nest. As kivi4 in groups and planes, but the upper two bits of each code lie apart as codes of
// their own, and the lower two refine them: compressing to 2 bits drops bytes and rewrites none. layered2 is what
// remains: quarters of the range from minimum to maximum, decoded to their centres.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/layered.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "quantizers/kivi.h"
#include "quantizers/layered-inl.h"
#include "quantizers/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::layered::HWY_NAMESPACE {

void encode(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement, const Ahead& ahead) {
  shale::HWY_NAMESPACE::encode_layered(rows, base, refinement, ahead);
}
void decode(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) {
  shale::HWY_NAMESPACE::decode_layered(base, refinement, rows);
}

}  // namespace shale::layered::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace layered {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

// Without a refinement: layered2.
class Coarse : public Kivi {
 public:
  std::string_view name() const override { return "layered2"; }
  double bits() const override { return 2; }

 private:
  std::size_t base_code_bits() const final { return 2; }
  void encode_block(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement,
                    const Ahead& ahead) const final {
    HWY_DYNAMIC_DISPATCH(encode)(rows, base, refinement, ahead);
  }
  void decode_block(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const final {
    HWY_DYNAMIC_DISPATCH(decode)(base, refinement, rows);
  }
};

class Nested final : public Coarse {
 public:
  std::string_view name() const override { return "layered"; }
  double bits() const override { return 4; }

 private:
  Planes refinement_planes(std::uint32_t tokens, std::uint32_t head_dim) const override {
    return {key_codes(tokens, head_dim, 2), value_codes(tokens, head_dim, 2)};
  }
};

}  // namespace layered

std::unique_ptr<Quantizer> make_layered(const CachegenTables*) { return std::make_unique<layered::Nested>(); }
std::unique_ptr<Quantizer> make_layered2(const CachegenTables*) { return std::make_unique<layered::Coarse>(); }

}  // namespace shale
#endif
