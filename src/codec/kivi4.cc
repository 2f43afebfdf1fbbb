// kivi4 (Liu et al. 2024, arXiv 2402.02750): 4 bits, asymmetric; keys per channel in groups of 32 tokens, values per
// token in groups of 32 channels; minimum and scale in binary16. A stored object has no uncompressed residue.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kivi4.cc"
// clang-format off
#include "codec/targets.h"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "codec/kivi-inl.h"
#include "codec/kivi.h"
#include "codec/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kivi4::HWY_NAMESPACE {

void encode(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  shale::HWY_NAMESPACE::encode_kivi<4>(rows, out, ahead);
}
void decode(const std::byte* in, const KvRows<Half>& rows) { shale::HWY_NAMESPACE::decode_kivi<4>(in, rows); }

}  // namespace shale::kivi4::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace kivi4 {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Kivi4 final : public Kivi {
 public:
  std::string_view name() const override { return "kivi4"; }
  double bits() const override { return 4; }

 private:
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(rows, out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(in, rows);
  }
};

}  // namespace kivi4

std::unique_ptr<Quantizer> make_kivi4() { return std::make_unique<kivi4::Kivi4>(); }

}  // namespace shale
#endif
