#include "memory_bandwidth.h"

#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "microbench/memory_bandwidth.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace shale::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// No sum of the lanes: g++ adds them as signed numbers, which overflow.
std::uint64_t read_words(const std::uint64_t* words, std::size_t count) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Xor(a, hn::LoadU(d, words + i));
    b = hn::Xor(b, hn::LoadU(d, words + i + lanes));
    c = hn::Xor(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Xor(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

}  // namespace shale::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::bench {

HWY_EXPORT(read_words);

std::uint64_t read_bytes(std::span<const std::byte> bytes) {
  return HWY_DYNAMIC_DISPATCH(read_words)(reinterpret_cast<const std::uint64_t*>(bytes.data()),
                                          bytes.size() / sizeof(std::uint64_t));
}

double seconds_of(const std::function<void()>& pass) {
  const auto start = std::chrono::steady_clock::now();
  pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace shale::bench
#endif
