// layered2: what layered is without its refinement, 2 bits: quarters of the range from minimum to maximum, decoded to
// their centres.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/layered2.cc"
// clang-format off
#include "codec/targets.h"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "codec/kivi.h"
#include "codec/layered-inl.h"
#include "codec/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::layered2::HWY_NAMESPACE {

void encode(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement, const Ahead& ahead) {
  shale::HWY_NAMESPACE::encode_layered(rows, base, refinement, ahead);
}
void decode(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) {
  shale::HWY_NAMESPACE::decode_layered(base, refinement, rows);
}

}  // namespace shale::layered2::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace layered2 {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Layered2 final : public Kivi {
 public:
  std::string_view name() const override { return "layered2"; }
  double bits() const override { return 2; }

 private:
  void encode_block(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement,
                    const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(rows, base, refinement, ahead);
  }
  void decode_block(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(base, refinement, rows);
  }
};

}  // namespace layered2

std::unique_ptr<Quantizer> make_layered2() { return std::make_unique<layered2::Layered2>(); }

}  // namespace shale
#endif
