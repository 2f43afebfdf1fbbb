// turboquant2 (Zandieh et al. 2025, arXiv 2504.19874), 2 bits: each key and value rotated by a fixed random rotation,
// after which its coordinates are near enough independent Gaussians, and each coordinate coded by the optimal scalar
// quantizer of one. The vector's root mean square is kept in binary16.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/turboquant2.cc"
// clang-format off
#include "codec/targets.h"
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "codec/registry.h"
#include "codec/turboquant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::turboquant2::HWY_NAMESPACE {

void encode(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  shale::HWY_NAMESPACE::encode_turboquant<2>(rows, out, ahead);
}
void decode(const std::byte* in, const KvRows<Half>& rows) { shale::HWY_NAMESPACE::decode_turboquant<2>(in, rows); }

}  // namespace shale::turboquant2::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace turboquant2 {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Turboquant2 final : public Turboquant {
 public:
  std::string_view name() const override { return "turboquant2"; }
  double bits() const override { return 2; }

 private:
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(rows, out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(in, rows);
  }
};

}  // namespace turboquant2

std::unique_ptr<Quantizer> make_turboquant2() { return std::make_unique<turboquant2::Turboquant2>(); }

}  // namespace shale
#endif
