// layered: 4 bits that nest. As kivi4 in groups and planes, but the upper two bits of each code lie apart as codes of
// their own (layered2), and the lower two refine them: pressing to 2 bits drops bytes and rewrites none.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/layered.cc"
// clang-format off
#include "codec/targets.h"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "codec/kivi.h"
#include "codec/layered-inl.h"
#include "codec/registry.h"

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

class Layered final : public Kivi {
 public:
  std::string_view name() const override { return "layered"; }
  double bits() const override { return 4; }

 private:
  std::size_t base_code_bits() const override { return 2; }
  Planes refinement_planes(std::uint32_t tokens, std::uint32_t head_dim) const override {
    return {key_codes(tokens, head_dim, 2), value_codes(tokens, head_dim, 2)};
  }
  void encode_block(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement,
                    const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(rows, base, refinement, ahead);
  }
  void decode_block(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(base, refinement, rows);
  }
};

}  // namespace layered

std::unique_ptr<Quantizer> make_layered() { return std::make_unique<layered::Layered>(); }

}  // namespace shale
#endif
