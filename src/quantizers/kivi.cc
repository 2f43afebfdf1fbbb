// kivi2, kivi4 (Liu et al. 2024, arXiv 2402.02750): 2 and 4 bits, asymmetric; keys per channel in groups of 32 tokens,
// values per token in groups of 32 channels; minimum and scale in binary16. What is stored has no uncompressed
// residue.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/kivi.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "quantizers/kivi.h"

#include "quantizers/kivi-inl.h"
#include "quantizers/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kivi::HWY_NAMESPACE {

void encode(int bits, const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  switch (bits) {
    case 2:
      return shale::HWY_NAMESPACE::encode_kivi<2>(rows, out, ahead);
    default:
      return shale::HWY_NAMESPACE::encode_kivi<4>(rows, out, ahead);
  }
}
void decode(int bits, const std::byte* in, const KvRows<Half>& rows) {
  switch (bits) {
    case 2:
      return shale::HWY_NAMESPACE::decode_kivi<2>(in, rows);
    default:
      return shale::HWY_NAMESPACE::decode_kivi<4>(in, rows);
  }
}

}  // namespace shale::kivi::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace kivi {
HWY_EXPORT(encode);
HWY_EXPORT(decode);

class Coder final : public Kivi {
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

}  // namespace kivi

std::unique_ptr<Quantizer> make_kivi2(const CachegenTables*) { return std::make_unique<kivi::Coder>("kivi2", 2); }
std::unique_ptr<Quantizer> make_kivi4(const CachegenTables*) { return std::make_unique<kivi::Coder>("kivi4", 4); }

}  // namespace shale
#endif
