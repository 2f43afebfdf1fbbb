// turboquant2, turboquant3, turboquant4 (Zandieh et al. 2025, arXiv 2504.19874), 2 to 4 bits: each key and value
// rotated by a fixed random rotation, after which its coordinates are near enough independent Gaussians, and each
// coordinate coded by the optimal scalar quantizer of one. The vector's root mean square is kept in binary16.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/turboquant.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "quantizers/registry.h"
#include "quantizers/turboquant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::turboquant::HWY_NAMESPACE {

void encode(int bits, const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  switch (bits) {
    case 2:
      return shale::HWY_NAMESPACE::encode_turboquant<2>(rows, out, ahead);
    case 3:
      return shale::HWY_NAMESPACE::encode_turboquant<3>(rows, out, ahead);
    default:
      return shale::HWY_NAMESPACE::encode_turboquant<4>(rows, out, ahead);
  }
}
void decode(int bits, const std::byte* in, const KvRows<Half>& rows) {
  switch (bits) {
    case 2:
      return shale::HWY_NAMESPACE::decode_turboquant<2>(in, rows);
    case 3:
      return shale::HWY_NAMESPACE::decode_turboquant<3>(in, rows);
    default:
      return shale::HWY_NAMESPACE::decode_turboquant<4>(in, rows);
  }
}

}  // namespace shale::turboquant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace turboquant {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Coder final : public Turboquant {
 public:
  Coder(std::string_view name, int bits) : name_(name), bits_(bits) {}
  std::string_view name() const override { return name_; }
  double bits() const override { return bits_; }

 private:
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(encode)(bits_, rows, out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(decode)(bits_, in, rows);
  }

  std::string_view name_;
  int bits_;
};

}  // namespace turboquant

std::unique_ptr<Quantizer> make_turboquant2(const CachegenTables*) {
  return std::make_unique<turboquant::Coder>("turboquant2", 2);
}
std::unique_ptr<Quantizer> make_turboquant3(const CachegenTables*) {
  return std::make_unique<turboquant::Coder>("turboquant3", 3);
}
std::unique_ptr<Quantizer> make_turboquant4(const CachegenTables*) {
  return std::make_unique<turboquant::Coder>("turboquant4", 4);
}

}  // namespace shale
#endif
