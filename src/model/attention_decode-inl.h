// One query against a span of pages: bound by memory, so keys and values are converted as they are read, once for up to
// eight query heads, while the pages of the next block are on their way.
#if defined(SHALE_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_ATTENTION_DECODE_INL_H_
#undef SHALE_ATTENTION_DECODE_INL_H_
#else
#define SHALE_ATTENTION_DECODE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "model/attention_kernels.h"
#include "model/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

inline constexpr std::uint32_t kDecodeTokens = 64;  // of a block: scores and pages of one stay in the first-level cache
inline constexpr std::uint32_t kDecodePages = 8;
inline constexpr std::uint32_t kHeadsMax = 8;                           // query heads that share one pass
inline constexpr int kAccumulators = HWY_TARGET <= HWY_AVX3 ? 28 : 12;  // of the 32 or 16 vector registers

inline constexpr std::size_t kLineElements = 64 / sizeof(Half);

// Consecutive pages whose tokens are attended to together.
struct DecodeBlock {
  std::array<PageView, kDecodePages> pages;
  std::array<std::uint32_t, kDecodePages> counts;
  std::uint32_t page_count = 0;
  std::uint32_t tokens = 0;

  // Takes pages off the front of `slots`; empty when there are none.
  void take(const PagePool& pool, std::span<const PageSlot>& slots) {
    page_count = tokens = 0;
    while (!slots.empty() && page_count < kDecodePages && tokens + pool.shape().page_tokens <= kDecodeTokens) {
      pages[page_count] = pool.page(slots.front().page);
      counts[page_count++] = slots.front().count;
      tokens += slots.front().count;
      slots = slots.subspan(1);
    }
  }

  // Fetches the beginning of each page, so that the hardware's own prefetcher recognises the streams early.
  void announce() const {
    for (std::uint32_t p = 0; p < page_count; ++p) {
      for (int line = 0; line < 3; ++line) hwy::Prefetch(pages[p].keys + line * kLineElements);
    }
  }
};

// A vector's width of tokens of one page: the lane of a score is a token.
struct ScoreColumn {
  const Half* keys;
  const Half* next;  // the same place in the next block, to prefetch
  float* scores;     // of the first query head; rows kScoreStride apart
};
inline constexpr std::size_t kScoreStride = kDecodeTokens + 16;  // a column's last store may run over

template <class D, int kHeads, int kColumns>
HWY_INLINE void score_columns(D d, const float* queries, std::uint32_t head_dim, std::uint32_t page_tokens,
                              const ScoreColumn* columns) {
  hn::Vec<D> dot[kHeads * kColumns];
  for (auto& each : dot) each = hn::Zero(d);
  for (std::size_t channel = 0; channel < head_dim; channel += 2) {
    for (int j = 0; j < kColumns; ++j) hwy::Prefetch(columns[j].next + channel * page_tokens);
    for (std::size_t c = channel; c < channel + 2; ++c) {
      hn::Vec<D> key[kColumns];
      for (int j = 0; j < kColumns; ++j) key[j] = load(d, columns[j].keys + c * page_tokens);
      for (int h = 0; h < kHeads; ++h) {
        const auto query = hn::Set(d, queries[h * head_dim + c]);
        for (int j = 0; j < kColumns; ++j) dot[h * kColumns + j] = hn::MulAdd(query, key[j], dot[h * kColumns + j]);
      }
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    for (int h = 0; h < kHeads; ++h) hn::StoreU(dot[h * kColumns + j], d, columns[j].scores + h * kScoreStride);
  }
}

// scores[h][t] = queries[h] · key t, for every token of the block, gap-free; then one vector of minus infinity.
template <class D, int kHeads>
void score_block(D d, const float* queries, const PageShape& shape, const DecodeBlock& block, const DecodeBlock& next,
                 float* scores) {
  constexpr int kColumns = std::clamp(kAccumulators / kHeads, 1, 4);
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  std::array<ScoreColumn, kDecodePages * 16> columns;
  std::size_t count = 0;
  std::uint32_t at = 0;
  for (std::uint32_t p = 0; p < block.page_count; ++p) {
    const Half* prefetch = p < next.page_count ? next.pages[p].keys : block.pages[p].keys;
    // Lanes beyond the page's count hold anything; what is stored after them overwrites their scores.
    for (std::uint32_t t = 0; t < block.counts[p]; t += lanes) {
      columns[count++] = {block.pages[p].keys + t, prefetch + t, scores + at + t};
    }
    at += block.counts[p];
  }
  std::size_t j = 0;
  for (; j + kColumns <= count; j += kColumns) {
    score_columns<D, kHeads, kColumns>(d, queries, shape.head_dim, shape.page_tokens, &columns[j]);
  }
  for (; j < count; ++j) score_columns<D, kHeads, 1>(d, queries, shape.head_dim, shape.page_tokens, &columns[j]);
  const Wide wide;
  const auto nothing = hn::Set(wide, -std::numeric_limits<float>::infinity());
  for (int h = 0; h < kHeads; ++h) hn::StoreU(nothing, wide, scores + h * kScoreStride + block.tokens);
}

// Turns one head's scores into weights 2^(score - peak), raising the peak; returns by how much older sums shrink.
HWY_INLINE float soften(float* scores, std::uint32_t tokens, float& peak, float& weight) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  auto highest = hn::Load(d, scores);
  for (std::size_t t = lanes; t < tokens; t += lanes) highest = hn::Max(highest, hn::Load(d, scores + t));
  const float raised = std::max(peak, hn::GetLane(hn::MaxOfLanes(d, highest)));
  const auto base = hn::Set(d, raised);
  auto sum = hn::Zero(d);
  for (std::size_t t = 0; t < tokens; t += lanes) {
    const auto weights = exp2_negative(d, hn::Sub(hn::Load(d, scores + t), base));
    hn::Store(weights, d, scores + t);
    sum = hn::Add(sum, weights);
  }
  const float shrink = raised == peak ? 1.0f : exp2_negative(peak - raised);
  peak = raised;
  weight = weight * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
  return shrink;
}

// sums[h][first …] = shrink[h] · sums[h][first …] + Σ weights[h][t] · value t, over kVectors vectors of channels.
template <class D, int kHeads, int kVectors>
HWY_INLINE void add_values(D d, const float* weights, const float* shrink, std::size_t head_dim,
                           const DecodeBlock& block, const DecodeBlock& next, std::size_t first, float* sums) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[kHeads * kVectors];
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      sum[h * kVectors + v] = hn::Mul(hn::Set(d, shrink[h]), hn::LoadU(d, sums + h * head_dim + first + v * lanes));
    }
  }
  const float* weight = weights;
  for (std::uint32_t p = 0; p < block.page_count; ++p) {
    const Half* values = block.pages[p].values + first;
    const Half* prefetch = (p < next.page_count ? next.pages[p].values : block.pages[p].values) + first;
    for (std::size_t t = 0; t < block.counts[p]; ++t, ++weight) {
      hn::Vec<D> value[kVectors];
      for (int v = 0; v < kVectors; ++v) value[v] = load(d, values + t * head_dim + v * lanes);
      for (std::size_t c = 0; c < kVectors * lanes; c += kLineElements) hwy::Prefetch(prefetch + t * head_dim + c);
      for (int h = 0; h < kHeads; ++h) {
        const auto w = hn::Set(d, weight[h * kScoreStride]);
        for (int v = 0; v < kVectors; ++v) sum[h * kVectors + v] = hn::MulAdd(w, value[v], sum[h * kVectors + v]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[h * kVectors + v], d, sums + h * head_dim + first + v * lanes);
  }
}

template <int kHeads>
HWY_INLINE void add_values_block(const float* weights, const float* shrink, std::size_t head_dim,
                                 const DecodeBlock& block, const DecodeBlock& next, float* sums) {
  constexpr int kVectors = std::clamp(kAccumulators / kHeads, 1, 4);
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + kVectors * lanes <= head_dim; c += kVectors * lanes) {
    add_values<Wide, kHeads, kVectors>(d, weights, shrink, head_dim, block, next, c, sums);
  }
  for (; c + lanes <= head_dim; c += lanes) {
    add_values<Wide, kHeads, 1>(d, weights, shrink, head_dim, block, next, c, sums);
  }
  if (c < head_dim) add_values<Eight, kHeads, 1>(Eight(), weights, shrink, head_dim, block, next, c, sums);
}

// `queries`: [kHeads][head_dim], scaled. Fills the kHeads rows of the partial.
template <int kHeads>
void decode_heads(const PagePool& pool, const float* queries, std::span<const PageSlot> slots,
                  AttentionPartial partial) {
  const PageShape& shape = pool.shape();
  HWY_ALIGN float scores[kHeads * kScoreStride];
  float shrink[kHeads];
  std::fill_n(partial.sums, kHeads * shape.head_dim, 0.0f);
  std::fill_n(partial.peaks, kHeads, std::numeric_limits<float>::lowest());
  std::fill_n(partial.weights, kHeads, 0.0f);
  DecodeBlock blocks[3];
  DecodeBlock *block = &blocks[0], *next = &blocks[1], *after = &blocks[2];
  block->take(pool, slots);
  next->take(pool, slots);
  for (; block->page_count > 0; std::swap(block, next), std::swap(next, after)) {
    after->take(pool, slots);
    after->announce();
    if (shape.page_tokens < hn::MaxLanes(Wide())) {
      score_block<Eight, kHeads>(Eight(), queries, shape, *block, *next, scores);
    } else {
      score_block<Wide, kHeads>(Wide(), queries, shape, *block, *next, scores);
    }
    for (int h = 0; h < kHeads; ++h) {
      shrink[h] = soften(scores + h * kScoreStride, block->tokens, partial.peaks[h], partial.weights[h]);
    }
    add_values_block<kHeads>(scores, shrink, shape.head_dim, *block, *next, partial.sums);
  }
}

template <int kHeads>
void decode_heads_of(std::uint32_t heads, const PagePool& pool, const float* queries, std::span<const PageSlot> slots,
                     const AttentionPartial& partial) {
  if (heads == kHeads) return decode_heads<kHeads>(pool, queries, slots, partial);
  if constexpr (kHeads > 1) decode_heads_of<kHeads - 1>(heads, pool, queries, slots, partial);
}

// `queries`: [group][head_dim], scaled.
inline void decode(const PagePool& pool, const AttentionRows& rows, const float* queries,
                   std::span<const PageSlot> slots, const AttentionPartial& partial) {
  for (std::uint32_t first = 0; first < rows.group; first += kHeadsMax) {
    const std::size_t offset = std::size_t{first} * rows.head_dim;
    decode_heads_of<kHeadsMax>(std::min(kHeadsMax, rows.group - first), pool, queries + offset, slots,
                               {partial.sums + offset, partial.peaks + first, partial.weights + first});
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
