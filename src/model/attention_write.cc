#include <algorithm>

#include "model/attention.h"
#include "model/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/attention_write.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "model/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// Keys are transposed on the way: a row of the page is one channel of consecutive tokens.
void write_run(const KvRun& run, const PageShape& shape, const MutablePageView& page, std::uint32_t slot) {
  const Eight d;
  const std::size_t lanes = hn::Lanes(d);
  const auto rows = hn::Mul(hn::Iota(hn::RebindToSigned<Eight>(), 0),
                            hn::Set(hn::RebindToSigned<Eight>(), static_cast<std::int32_t>(run.stride)));
  for (std::size_t c = 0; c < shape.head_dim; ++c) {
    Half* to = page.keys + c * shape.page_tokens + slot;
    std::size_t t = 0;
    for (; t + lanes <= run.tokens; t += lanes)
      store(d, hn::GatherIndex(d, run.keys + t * run.stride + c, rows), to + t);
    for (; t < run.tokens; ++t) to[t] = to_half(run.keys[t * run.stride + c]);
  }
  for (std::size_t t = 0; t < run.tokens; ++t) {
    Half* to = page.values + (slot + t) * shape.head_dim;
    for (std::size_t c = 0; c < shape.head_dim; c += lanes)
      store(d, hn::LoadU(d, run.values + t * run.stride + c), to + c);
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {

HWY_EXPORT(write_run);

void write_kv(PagePool& pool, const Sequence& sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
              const float* keys, const float* values, std::size_t stride) {
  const PageShape& shape = pool.shape();
  for (std::uint32_t i = 0; i < count;) {
    const Sequence::Place place = sequence.appended(layer, head, i, count);
    const std::uint32_t tokens = std::min(count - i, shape.page_tokens - place.slot);
    HWY_DYNAMIC_DISPATCH(write_run)
    ({keys + i * stride, values + i * stride, stride, tokens}, shape, pool.writable_page(place.page), place.slot);
    i += tokens;
  }
}

}  // namespace shale
#endif
