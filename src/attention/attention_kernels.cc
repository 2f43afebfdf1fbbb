#include "attention/attention_kernels.h"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/attention_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/attention_decode-inl.h"
#include "attention/attention_receive-inl.h"
#include "attention/attention_tile-inl.h"
#include "core/aligned_buffer.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// Rows gathered, scaled so that scores are exponents of 2, and padded with zeros to whole row groups.
const float* scaled_queries(const AttentionRows& rows) {
  thread_local AlignedBuffer memory;
  const std::size_t floats = padded_rows(rows.rows()) * std::size_t{rows.head_dim};
  float* scaled = memory.floats(floats);
  const float factor = rows.scale * std::numbers::log2e_v<float>;
  const std::size_t per_query = std::size_t{rows.group} * rows.head_dim;
  for (std::uint32_t q = 0; q < rows.query_count; ++q) {
    const float* query = rows.queries + q * rows.query_stride;
    for (std::size_t i = 0; i < per_query; ++i) scaled[q * per_query + i] = query[i] * factor;
  }
  std::fill(scaled + rows.query_count * per_query, scaled + floats, 0.0f);
  return scaled;
}

template <class View>
void attend_pages(const HostView& pool, const AttentionRows& rows, const AttentionSpan& span,
                  const AttentionPartial& partial) {
  const float* queries = scaled_queries(rows);
  if (rows.query_count == 1) {
    decode<View>(pool, rows, queries, span, partial);
  } else {
    attend_tile<View>(pool, rows, queries, span, partial);
  }
}

void attend(const HostView& pool, const AttentionRows& rows, const AttentionSpan& span,
            const AttentionPartial& partial) {
  const bool halves = pool.shape().element == PageElement::kHalf;
  (halves ? attend_pages<PageView> : attend_pages<Int8PageView>)(pool, rows, span, partial);
}

// A partial of which the row sees nothing changes nothing, whichever of the two it is.
void fold(const AttentionRows& rows, const AttentionPartial& next, const AttentionPartial& into) {
  const Eight d;
  for (std::uint32_t row = 0; row < rows.rows(); ++row) {
    const float peak = std::max(into.peaks[row], next.peaks[row]);
    const float old_share = exp2_negative(into.peaks[row] - peak), new_share = exp2_negative(next.peaks[row] - peak);
    const float old_weight = into.weights[row] * old_share, new_weight = next.weights[row] * new_share;
    into.peaks[row] = peak;
    into.weights[row] = old_weight + new_weight;
    float* to = into.sums + std::size_t{row} * rows.head_dim;
    const float* from = next.sums + std::size_t{row} * rows.head_dim;
    for (std::size_t c = 0; c < rows.head_dim; c += hn::Lanes(d)) {
      const auto old_sum = hn::Mul(hn::Set(d, old_share), hn::LoadU(d, to + c));
      hn::StoreU(hn::MulAdd(hn::Set(d, new_share), hn::LoadU(d, from + c), old_sum), d, to + c);
    }
  }
}

void finish(const AttentionRows& rows, const AttentionPartial& partial, float* output, std::size_t output_stride,
            float* log_sums, std::size_t log_sum_stride) {
  const Eight d;
  for (std::uint32_t row = 0; row < rows.rows(); ++row) {
    const float weight = partial.weights[row];
    const auto share = hn::Set(d, weight > 0 ? 1 / weight : 0.0f);
    if (log_sums) {
      log_sums[row / rows.group * log_sum_stride + row % rows.group] =
          partial.peaks[row] * std::numbers::ln2_v<float> + std::log(weight);
    }
    const float* sums = partial.sums + std::size_t{row} * rows.head_dim;
    float* to = output + row / rows.group * output_stride + row % rows.group * std::size_t{rows.head_dim};
    for (std::size_t c = 0; c < rows.head_dim; c += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(share, hn::LoadU(d, sums + c)), d, to + c);
    }
  }
}

void receive(const HostView& pool, const AttentionRows& rows, const float* log_sums, std::size_t log_sum_stride,
             const PageSlots& slots, std::uint32_t first_token, bool largest, float* received) {
  const bool halves = pool.shape().element == PageElement::kHalf;
  const auto run = largest ? (halves ? receive_slots<PageView, true> : receive_slots<Int8PageView, true>)
                           : (halves ? receive_slots<PageView, false> : receive_slots<Int8PageView, false>);
  run(pool, rows, log_sums, log_sum_stride, slots, first_token, received);
}

// A page's slots at once, a vector of them after the other; what is added beyond a page's last slot means nothing.
template <class D>
void add_received_pages(D d, const AttentionRows& rows, const float* log_sums, const PageSlots& slots,
                        std::uint32_t block_size, float* received) {
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto share = hn::Set(d, 1 / static_cast<float>(rows.group));
  const float* scores = rows.scores;
  for (const PageSlot slot : slots) {
    for (std::uint32_t t = 0; t < slot.count; t += lanes) {
      auto sum = hn::Zero(d);
      for (std::uint32_t h = 0; h < rows.group; ++h) {
        const auto log2_sum = hn::Set(d, log_sums[h] * std::numbers::log2e_v<float>);
        sum = hn::Add(sum, exp2_negative(d, hn::Sub(hn::LoadU(d, scores + h * rows.score_stride + t), log2_sum)));
      }
      hn::StoreU(hn::MulAdd(sum, share, hn::LoadU(d, received + t)), d, received + t);
    }
    scores += slot.count;
    received += block_size;
  }
}

void add_received(const AttentionRows& rows, const float* log_sums, const PageSlots& slots, std::uint32_t block_size,
                  float* received) {
  if (block_size < hn::MaxLanes(Wide())) {
    add_received_pages(Eight(), rows, log_sums, slots, block_size, received);
  } else {
    add_received_pages(Wide(), rows, log_sums, slots, block_size, received);
  }
}

AttentionKernels kernels() { return {attend, fold, finish, receive, add_received, hwy::TargetName(HWY_TARGET)}; }

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {

HWY_EXPORT(kernels);
AttentionKernels attention_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }

}  // namespace shale
#endif
