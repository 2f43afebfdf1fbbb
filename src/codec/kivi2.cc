// kivi2 (Liu et al. 2024, arXiv 2402.02750): 2 bits, asymmetric; keys per channel in groups of 32 tokens, values per
// token in groups of 32 channels; minimum and scale in binary16. A stored object has no uncompressed residue.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kivi2.cc"
// clang-format off
#include "codec/targets.h"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "codec/kivi-inl.h"
#include "codec/kivi.h"
#include "codec/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kivi2::HWY_NAMESPACE {

void encode(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  shale::HWY_NAMESPACE::encode_kivi<2>(rows, out, ahead);
}
void decode(const std::byte* in, const KvRows<Half>& rows) { shale::HWY_NAMESPACE::decode_kivi<2>(in, rows); }

}  // namespace shale::kivi2::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace kivi2 {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Kivi2 final : public Kivi {
 public:
  std::string_view name() const override { return "kivi2"; }
  double bits() const override { return 2; }

 private:
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(rows, out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(in, rows);
  }
};

}  // namespace kivi2

std::unique_ptr<Quantizer> make_kivi2() { return std::make_unique<kivi2::Kivi2>(); }

}  // namespace shale
#endif
