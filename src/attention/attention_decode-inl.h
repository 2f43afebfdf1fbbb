// One query against a span of pages: bound by memory, so keys and values are converted as they are read, once for up to
// eight query heads, while the pages of the next block are on their way.
#if defined(SHALE_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_ATTENTION_DECODE_INL_H_
#undef SHALE_ATTENTION_DECODE_INL_H_
#else
#define SHALE_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "attention/attention_kernels.h"
#include "attention/attention_simd-inl.h"
#include "core/aligned_buffer.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

inline constexpr std::uint32_t kDecodePages = 8;
inline constexpr std::uint32_t kHeadsMax = 8;                           // query heads that share one pass
inline constexpr int kAccumulators = HWY_TARGET <= HWY_AVX3 ? 24 : 12;  // of the 32 or 16 vector registers

// Vectors worked on at once for each of `heads` heads: no more than the registers hold, a power of two so that none is
// left over.
constexpr int at_once(int heads) {
  const int most = kAccumulators / heads;
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// The page without its first `hidden` tokens.
inline PageView behind(const PageView& page, std::uint32_t hidden, std::uint32_t head_dim) {
  return {page.keys + hidden, page.values + hidden * head_dim};
}
inline Int8PageView behind(const Int8PageView& page, std::uint32_t hidden, std::uint32_t head_dim) {
  return {page.key_scales + hidden, page.value_scales + hidden, page.keys + hidden, page.values + hidden * head_dim};
}

// Consecutive pages whose tokens are attended to together.
template <class View>
struct DecodeBlock {
  std::array<View, kDecodePages> pages;
  std::array<const std::byte*, kDecodePages> bytes;  // of each whole page
  std::array<std::uint32_t, kDecodePages> counts;
  std::array<std::uint64_t, kDecodePages> holes;
  std::uint32_t page_count = 0;
  std::uint32_t lead = 0;    // lanes before the first page's tokens
  std::uint32_t tokens = 0;  // with those lanes
  bool any_holes = false;

  // Takes pages off the front of `slots`, the first of them without its first `hidden` tokens, which count as lanes
  // before it; empty when there are none.
  void take(const HostView& pool, PageSlots& slots, std::uint32_t lanes_before = 0, std::uint32_t hidden = 0) {
    page_count = 0;
    lead = tokens = lanes_before + hidden;
    any_holes = false;
    while (!slots.empty() && page_count < kDecodePages) {
      const PageSlot slot = slots.front();
      if (tokens + slot.count - hidden > kBlockTokens) break;
      slots.remove_prefix(1);
      bytes[page_count] = pool.bytes(slot.page).data();
      pages[page_count] = behind(View::of(bytes[page_count], pool.shape()), hidden, pool.shape().head_dim);
      holes[page_count] = slot.holes >> hidden;
      any_holes |= holes[page_count] != 0;
      counts[page_count] = slot.count - hidden;
      tokens += counts[page_count++];
      hidden = 0;
    }
  }
};

// Fetches a block's bytes while the block before it is worked on, a few lines at each step: in four streams at once,
// since the hardware's own prefetcher follows each and only together they keep the memory busy.
class Prefetcher {
 public:
  template <class View>
  Prefetcher(const DecodeBlock<View>& block, const PageShape& shape) {
    const std::size_t page_bytes = shape.page_bytes();
    const std::size_t pieces_per_page = std::max<std::size_t>(1, shape.block_size * kStreams / kBlockTokens);
    piece_bytes_ = page_bytes / pieces_per_page;
    for (std::uint32_t p = 0; p < block.page_count; ++p) {
      for (std::size_t piece = 0; piece < pieces_per_page; ++piece)
        pieces_[count_++] = block.bytes[p] + piece * piece_bytes_;
    }
    // Streams without a piece follow another's.
    while (count_ % kStreams != 0) pieces_[count_] = pieces_[count_ - 1], ++count_;
  }

  HWY_INLINE void step() {
    if (first_ == count_) return;
    for (std::size_t stream = 0; stream < kStreams; ++stream) prefetch(pieces_[first_ + stream] + at_);
    at_ += 64;
    if (at_ < piece_bytes_) return;
    at_ = 0;
    first_ += kStreams;
  }

 private:
  static constexpr std::size_t kStreams = 4;
  std::array<const std::byte*, kDecodePages * kStreams> pieces_;
  std::size_t count_ = 0;  // a multiple of kStreams
  std::size_t piece_bytes_ = 0;
  std::size_t first_ = 0;  // piece of the first stream
  std::size_t at_ = 0;     // byte of it
};

// A vector's width of tokens of one page: the lane of a score is a token.
template <class View>
struct ScoreColumn {
  View page;      // from the first of the tokens on; its values are not looked at
  float* scores;  // of the first query head; rows kScoreStride apart
};
inline constexpr std::size_t kScoreStride = kBlockTokens + 16;  // a column's last store may run over

// dot[head][column] += Σ query · key over channels [first, end).
template <class View, class D, int kHeads, int kColumns>
HWY_INLINE void add_products(D d, const float* queries, std::size_t first, std::size_t end, std::uint32_t block_size,
                             const ScoreColumn<View>* columns, Prefetcher& prefetcher, hn::Vec<D>* dot) {
  constexpr std::size_t kChannels = 8 / kColumns;  // between steps of the prefetcher
  for (std::size_t channel = first; channel < end; channel += kChannels) {
    prefetcher.step();
    for (std::size_t c = channel; c < channel + kChannels; ++c) {
      hn::Vec<D> key[kColumns];
      for (int j = 0; j < kColumns; ++j) key[j] = load(d, columns[j].page.keys + c * block_size);
      for (int h = 0; h < kHeads; ++h) {
        const auto query = hn::Set(d, queries[c * kHeads + h]);
        for (int j = 0; j < kColumns; ++j) dot[h * kColumns + j] = hn::MulAdd(query, key[j], dot[h * kColumns + j]);
      }
    }
  }
}

template <class View, class D, int kHeads, int kColumns>
HWY_INLINE void score_columns(D d, const float* queries, std::uint32_t head_dim, std::uint32_t block_size,
                              const ScoreColumn<View>* columns, Prefetcher& prefetcher) {
  hn::Vec<D> dot[kHeads * kColumns];
  for (auto& each : dot) each = hn::Zero(d);
  if constexpr (kScaled<View>) {
    for (std::size_t first = 0; first < head_dim; first += kScaleChannels) {
      hn::Vec<D> codes[kHeads * kColumns];
      for (auto& each : codes) each = hn::Zero(d);
      add_products<View, D, kHeads, kColumns>(d, queries, first,
                                              std::min<std::size_t>(first + kScaleChannels, head_dim), block_size,
                                              columns, prefetcher, codes);
      for (int j = 0; j < kColumns; ++j) {
        const auto scale = load(d, columns[j].page.key_scales + first / kScaleChannels * block_size);
        for (int h = 0; h < kHeads; ++h)
          dot[h * kColumns + j] = hn::MulAdd(scale, codes[h * kColumns + j], dot[h * kColumns + j]);
      }
    }
  } else {
    add_products<View, D, kHeads, kColumns>(d, queries, 0, head_dim, block_size, columns, prefetcher, dot);
  }
  for (int j = 0; j < kColumns; ++j) {
    for (int h = 0; h < kHeads; ++h) hn::StoreU(dot[h * kColumns + j], d, columns[j].scores + h * kScoreStride);
  }
}

template <class View>
void leave_out_holes(const DecodeBlock<View>& block, int heads, float* scores) {
  std::uint32_t at = block.lead;
  for (std::uint32_t p = 0; p < block.page_count; at += block.counts[p++]) {
    for (std::uint64_t holes = block.holes[p]; holes != 0; holes &= holes - 1) {
      float* score = scores + at + std::countr_zero(holes);
      for (int h = 0; h < heads; ++h) score[h * kScoreStride] = -std::numeric_limits<float>::infinity();
    }
  }
}

// scores[h][t] = query h · key t, for every slot of the block, gap-free behind its lead, minus infinity for that and
// for holes; then one vector of minus infinity.
template <class View, class D, int kHeads>
void score_block(D d, const float* queries, const PageShape& shape, const DecodeBlock<View>& block,
                 Prefetcher& prefetcher, float* scores) {
  constexpr int kColumns = at_once(kHeads);
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  std::array<ScoreColumn<View>, kDecodePages * 16> columns;
  std::size_t count = 0;
  std::uint32_t at = block.lead;
  for (std::uint32_t p = 0; p < block.page_count; ++p) {
    // Lanes beyond the page's count hold anything; what is stored after them overwrites their scores.
    for (std::uint32_t t = 0; t < block.counts[p]; t += lanes) {
      columns[count++] = {behind(block.pages[p], t, shape.head_dim), scores + at + t};
    }
    at += block.counts[p];
  }
  std::size_t j = 0;
  for (; j + kColumns <= count; j += kColumns) {
    score_columns<View, D, kHeads, kColumns>(d, queries, shape.head_dim, shape.block_size, &columns[j], prefetcher);
  }
  for (; j < count; ++j)
    score_columns<View, D, kHeads, 1>(d, queries, shape.head_dim, shape.block_size, &columns[j], prefetcher);
  if (HWY_UNLIKELY(block.any_holes)) leave_out_holes(block, kHeads, scores);
  const Wide wide;
  const auto nothing = hn::Set(wide, -std::numeric_limits<float>::infinity());
  for (int h = 0; h < kHeads; ++h) {
    hn::StoreU(nothing, wide, scores + h * kScoreStride + block.tokens);
    std::fill_n(scores + h * kScoreStride, block.lead, -std::numeric_limits<float>::infinity());
  }
}

// Rows of weights by which values are added: one a head, and for pages with scales one a group and head.
inline constexpr std::size_t kWeightStride = kScoreStride;

// scaled[group][h][t] = weights[h][t] · the scale of value t's group.
template <class D, int kHeads>
HWY_INLINE void scale_weights(D d, const float* weights, const PageShape& shape, const DecodeBlock<Int8PageView>& block,
                              float* scaled) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  std::uint32_t at = block.lead;
  for (std::uint32_t p = 0; p < block.page_count; at += block.counts[p++]) {
    for (std::uint32_t group = 0; group < shape.scale_groups(); ++group) {
      const Half* scales = block.pages[p].value_scales + group * shape.block_size;
      float* to = scaled + group * kHeads * kWeightStride + at;
      // The next page's values overwrite those stored beyond this page's count.
      for (std::uint32_t t = 0; t < block.counts[p]; t += lanes) {
        const auto scale = load(d, scales + t);
        for (int h = 0; h < kHeads; ++h) {
          hn::StoreU(hn::Mul(scale, hn::LoadU(d, weights + h * kScoreStride + at + t)), d, to + h * kWeightStride + t);
        }
      }
    }
  }
}

// sums[h][first …] = shrink[h] · sums[h][first …] + Σ weights[h][t] · value t, over kVectors vectors of channels.
template <class View, class D, int kHeads, int kVectors>
HWY_INLINE void add_values(D d, const float* weights, const float* shrink, std::size_t head_dim,
                           const DecodeBlock<View>& block, Prefetcher& prefetcher, std::size_t first, float* sums) {
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t kTokens = 8 / kVectors;  // between steps of the prefetcher
  // Vectors that share their weights.
  constexpr int kAlike = kScaled<View> ? std::min<int>(kVectors, kScaleChannels / hn::MaxLanes(D())) : kVectors;
  hn::Vec<D> sum[kHeads * kVectors];
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      sum[h * kVectors + v] = hn::Mul(hn::Set(d, shrink[h]), hn::LoadU(d, sums + h * head_dim + first + v * lanes));
    }
  }
  const float* weight = kScaled<View> ? weights + first / kScaleChannels * kHeads * kWeightStride : weights;
  weight += block.lead;
  for (std::uint32_t p = 0; p < block.page_count; ++p) {
    const auto* values = block.pages[p].values + first;
    for (std::size_t t = 0; t < block.counts[p]; ++t, ++weight) {
      if (t % kTokens == 0) prefetcher.step();
      hn::Vec<D> value[kVectors];
      for (int v = 0; v < kVectors; ++v) value[v] = load(d, values + t * head_dim + v * lanes);
      for (int h = 0; h < kHeads; ++h) {
        for (int group = 0; group < kVectors / kAlike; ++group) {
          const auto w = hn::Set(d, weight[(group * kHeads + h) * kWeightStride]);
          for (int v = group * kAlike; v < (group + 1) * kAlike; ++v)
            sum[h * kVectors + v] = hn::MulAdd(w, value[v], sum[h * kVectors + v]);
        }
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[h * kVectors + v], d, sums + h * head_dim + first + v * lanes);
  }
}

template <class View, int kHeads>
HWY_INLINE void add_values_block(const float* weights, const float* shrink, std::size_t head_dim,
                                 const DecodeBlock<View>& block, Prefetcher& prefetcher, float* sums) {
  constexpr int kVectors = at_once(kHeads);
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + kVectors * lanes <= head_dim; c += kVectors * lanes) {
    add_values<View, Wide, kHeads, kVectors>(d, weights, shrink, head_dim, block, prefetcher, c, sums);
  }
  for (; c + lanes <= head_dim; c += lanes) {
    add_values<View, Wide, kHeads, 1>(d, weights, shrink, head_dim, block, prefetcher, c, sums);
  }
  if (c < head_dim) add_values<View, Eight, kHeads, 1>(Eight(), weights, shrink, head_dim, block, prefetcher, c, sums);
}

// `queries`: [head_dim][kHeads], scaled. The first page's first `hidden` tokens are left out. Fills the kHeads rows of
// the partial, and leaves the scores where `kept` points, rows kept_stride apart, unless it is null.
template <class View, int kHeads>
void decode_heads(const HostView& pool, const float* queries, const AttentionSpan& span, std::uint32_t hidden,
                  float* kept, std::size_t kept_stride, AttentionPartial partial) {
  const PageShape& shape = pool.shape();
  const bool narrow = shape.block_size < hn::MaxLanes(Wide());  // a vector would reach over a page's row
  HWY_ALIGN float scores[kHeads * kScoreStride];
  float shrink[kHeads];
  std::fill_n(partial.sums, kHeads * shape.head_dim, 0.0f);
  std::fill_n(partial.peaks, kHeads, std::numeric_limits<float>::lowest());
  std::fill_n(partial.weights, kHeads, 0.0f);
  if (kept) {
    for (int h = 0; h < kHeads; ++h) {
      std::fill_n(kept + static_cast<std::size_t>(h) * kept_stride, hidden, -std::numeric_limits<float>::infinity());
    }
    kept += hidden;
  }
  thread_local AlignedBuffer memory;
  float* const scaled = memory.floats(shape.scale_groups() * kHeads * kWeightStride);
  DecodeBlock<View> blocks[2];
  DecodeBlock<View>*block = &blocks[0], *next = &blocks[1];
  PageSlots slots = span.slots;
  for (block->take(pool, slots, span.lead, hidden); block->page_count > 0; std::swap(block, next)) {
    next->take(pool, slots);
    Prefetcher prefetcher(*next, shape);
    if (narrow) {
      score_block<View, Eight, kHeads>(Eight(), queries, shape, *block, prefetcher, scores);
    } else {
      score_block<View, Wide, kHeads>(Wide(), queries, shape, *block, prefetcher, scores);
    }
    if (kept) {
      for (int h = 0; h < kHeads; ++h)
        std::copy_n(scores + h * kScoreStride + block->lead, block->tokens - block->lead,
                    kept + static_cast<std::size_t>(h) * kept_stride);
      kept += block->tokens - block->lead;
    }
    for (int h = 0; h < kHeads; ++h) {
      shrink[h] = soften(scores + h * kScoreStride, block->tokens, partial.peaks[h], partial.weights[h]);
    }
    const float* of_values = scores;
    if constexpr (kScaled<View>) {
      narrow ? scale_weights<Eight, kHeads>(Eight(), scores, shape, *block, scaled)
             : scale_weights<Wide, kHeads>(Wide(), scores, shape, *block, scaled);
      of_values = scaled;
    }
    add_values_block<View, kHeads>(of_values, shrink, shape.head_dim, *block, prefetcher, partial.sums);
  }
}

template <class View, int kHeads>
void decode_heads_of(std::uint32_t heads, const HostView& pool, const float* queries, const AttentionSpan& span,
                     std::uint32_t hidden, float* kept, std::size_t kept_stride, const AttentionPartial& partial) {
  if (heads == kHeads) return decode_heads<View, kHeads>(pool, queries, span, hidden, kept, kept_stride, partial);
  if constexpr (kHeads > 1) {
    decode_heads_of<View, kHeads - 1>(heads, pool, queries, span, hidden, kept, kept_stride, partial);
  }
}

// `queries`: [group][head_dim], scaled.
template <class View>
void decode(const HostView& pool, const AttentionRows& rows, const float* queries, const AttentionSpan& span,
            const AttentionPartial& partial) {
  const std::uint32_t hidden = std::max(rows.hidden(0), span.first_token) - span.first_token;
  thread_local AlignedBuffer memory;
  float* transposed = memory.floats(kHeadsMax * std::size_t{rows.head_dim});
  for (std::uint32_t first = 0; first < rows.group; first += kHeadsMax) {
    const std::uint32_t heads = std::min(kHeadsMax, rows.group - first);
    const std::size_t offset = std::size_t{first} * rows.head_dim;
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (std::size_t c = 0; c < rows.head_dim; ++c)
        transposed[c * heads + h] = queries[offset + h * rows.head_dim + c];
    }
    float* kept = rows.scores ? rows.scores + first * rows.score_stride + span.first_token : nullptr;
    decode_heads_of<View, kHeadsMax>(heads, pool, transposed, span, hidden, kept, rows.score_stride,
                                     {partial.sums + offset, partial.peaks + first, partial.weights + first});
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
