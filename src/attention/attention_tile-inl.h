// Many rows against a span of pages: bound by arithmetic, so each block of keys and values is converted to fp32 once
// for all rows, and groups of rows then run two small matrix products with the softmax between them.
#if defined(SHALE_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_ATTENTION_TILE_INL_H_
#undef SHALE_ATTENTION_TILE_INL_H_
#else
#define SHALE_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "attention/attention_kernels.h"
#include "attention/attention_simd-inl.h"
#include "core/aligned_buffer.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

inline constexpr std::size_t kTileKeyStride = kBlockTokens + 16;  // a page's last store may run over
inline constexpr int kPanelVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// c[kRowGroup][kVectors vectors] (+)= a[kRowGroup][depth] · b[depth][kVectors vectors]
template <class D, int kVectors>
HWY_INLINE void multiply_panel(D d, const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                               std::size_t depth, float* c, std::size_t c_stride, bool accumulate) {
  constexpr int kRows = kRowGroup;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[kRows * kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r * kVectors + v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    hn::Vec<D> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * b_stride + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto left = hn::Set(d, a[r * a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r * kVectors + v] = hn::MulAdd(left, right[v], sum[r * kVectors + v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r * kVectors + v], d, c + r * c_stride + v * lanes);
  }
}

// As multiply_panel, over `columns` columns: a multiple of 8.
inline void multiply(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride, std::size_t depth,
                     std::size_t columns, float* c, std::size_t c_stride, bool accumulate) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t j = 0;
  for (; j + kPanelVectors * lanes <= columns; j += kPanelVectors * lanes) {
    multiply_panel<Wide, kPanelVectors>(d, a, a_stride, b + j, b_stride, depth, c + j, c_stride, accumulate);
  }
  for (; j + lanes <= columns; j += lanes) {
    multiply_panel<Wide, 1>(d, a, a_stride, b + j, b_stride, depth, c + j, c_stride, accumulate);
  }
  if (j < columns) multiply_panel<Eight, 1>(Eight(), a, a_stride, b + j, b_stride, depth, c + j, c_stride, accumulate);
}

// Up to kBlockTokens tokens in fp32: keys [head_dim][kTileKeyStride], values [tokens][head_dim] unless they are null.
// The first block begins with `lead` tokens of zeros, which nobody sees.
template <class View>
class TileBlock {
 public:
  TileBlock(const HostView& pool, const PageSlots& slots, std::uint32_t lead, float* keys, float* values)
      : pool_(pool), slots_(slots), keys_(keys), values_(values), lead_(lead) {}

  const float* keys() const { return keys_; }
  const float* values() const { return values_; }
  std::uint32_t tokens() const { return tokens_; }
  std::uint64_t holes() const { return holes_; }  // bit t for token t of the block

  // Converts the next tokens of the slots; false when there are none.
  bool take() {
    tokens_ = 0;
    holes_ = 0;
    if (slots_.empty()) return false;
    if (lead_ > 0) fill_lead();
    while (!slots_.empty() && tokens_ < kBlockTokens) {
      const PageSlot slot = slots_.front();
      const std::uint32_t count = std::min(slot.count - taken_, kBlockTokens - tokens_);
      convert(view_of<View>(pool_, slot.page), taken_, count);
      const std::uint64_t first_count = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
      holes_ |= (slot.holes >> taken_ & first_count) << tokens_;
      tokens_ += count;
      taken_ += count;
      if (taken_ == slot.count) {
        slots_.remove_prefix(1);
        taken_ = 0;
      }
    }
    return true;
  }

 private:
  void fill_lead() {
    const std::size_t head_dim = pool_.shape().head_dim;
    for (std::size_t c = 0; c < head_dim; ++c) std::fill_n(keys_ + c * kTileKeyStride, lead_, 0.0f);
    if (values_) std::fill_n(values_, lead_ * head_dim, 0.0f);
    tokens_ = std::exchange(lead_, 0);
  }

  // Lanes beyond the last token hold anything; the next page's tokens overwrite them, or the softmax leaves them out.
  void convert(const PageView& page, std::uint32_t first, std::uint32_t count) const {
    const Eight d;
    const std::size_t lanes = hn::Lanes(d);
    const std::size_t head_dim = pool_.shape().head_dim;
    for (std::size_t c = 0; c < head_dim; ++c) {
      const Half* from = page.keys + c * pool_.shape().block_size + first;
      float* to = keys_ + c * kTileKeyStride + tokens_;
      for (std::size_t t = 0; t < count; t += lanes) hn::StoreU(load(d, from + t), d, to + t);
    }
    if (!values_) return;
    const Half* from = page.values + first * head_dim;
    float* to = values_ + tokens_ * head_dim;
    for (std::size_t i = 0; i < count * head_dim; i += lanes) hn::StoreU(load(d, from + i), d, to + i);
  }

  void convert(const Int8PageView& page, std::uint32_t first, std::uint32_t count) const {
    const std::size_t head_dim = pool_.shape().head_dim;
    for (std::size_t group = 0; group < pool_.shape().scale_groups(); ++group) {
      const std::size_t begin = group * kScaleChannels, end = std::min(begin + kScaleChannels, head_dim);
      const std::size_t row = group * pool_.shape().block_size + first;
      convert_group(page, first, count, begin, end, page.key_scales + row, page.value_scales + row);
    }
  }

  // Channels [begin, end), which share their scales.
  void convert_group(const Int8PageView& page, std::uint32_t first, std::uint32_t count, std::size_t begin,
                     std::size_t end, const Half* key_scales, const Half* value_scales) const {
    const Eight d;
    const std::size_t lanes = hn::Lanes(d);
    const std::size_t head_dim = pool_.shape().head_dim, block_size = pool_.shape().block_size;
    HWY_ALIGN float scales[kBlockTokens + 16];
    for (std::size_t t = 0; t < count; t += lanes) {
      const auto scale = load(d, key_scales + t);
      for (std::size_t c = begin; c < end; ++c) {
        const auto code = load(d, page.keys + c * block_size + first + t);
        hn::StoreU(hn::Mul(scale, code), d, keys_ + c * kTileKeyStride + tokens_ + t);
      }
      hn::StoreU(load(d, value_scales + t), d, scales + t);
    }
    if (!values_) return;
    for (std::size_t t = 0; t < count; ++t) {
      const std::int8_t* from = page.values + (first + t) * head_dim;
      float* to = values_ + (tokens_ + t) * head_dim;
      const auto scale = hn::Set(d, scales[t]);
      for (std::size_t c = begin; c < end; c += lanes) hn::StoreU(hn::Mul(scale, load(d, from + c)), d, to + c);
    }
  }

  const HostView& pool_;
  PageSlots slots_;
  float* keys_;
  float* values_;
  std::uint32_t lead_;
  std::uint32_t taken_ = 0;  // tokens of the front slot
  std::uint32_t tokens_ = 0;
  std::uint64_t holes_ = 0;
};

// A row sees the scores from `hidden` to `visible` of its first `tokens`: all others, and what fills the last vector,
// become minus infinity.
HWY_INLINE void leave_out_unseen(float* scores, std::size_t tokens, std::size_t hidden, std::size_t visible) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t t = 0; t < std::min(hidden, tokens); t += lanes) {
    const auto score = hn::IfThenElse(hn::FirstN(d, std::min(hidden - t, lanes)), nothing, hn::Load(d, scores + t));
    hn::Store(score, d, scores + t);
  }
  for (std::size_t t = visible / lanes * lanes; t < tokens; t += lanes) {
    const auto score = hn::IfThenElse(hn::FirstN(d, visible > t ? visible - t : 0), hn::Load(d, scores + t), nothing);
    hn::Store(score, d, scores + t);
  }
}

// `queries`: [padded rows][head_dim], scaled.
template <class View>
void attend_tile(const HostView& pool, const AttentionRows& rows, const float* queries, const AttentionSpan& span,
                 const AttentionPartial& partial) {
  const std::size_t head_dim = rows.head_dim;
  const std::uint32_t padded = padded_rows(rows.rows());
  thread_local AlignedBuffer memory;
  float* keys = memory.floats(head_dim * (kTileKeyStride + kBlockTokens));
  TileBlock<View> block(pool, span.slots, span.lead, keys, keys + head_dim * kTileKeyStride);
  HWY_ALIGN float scores[kRowGroup * kBlockTokens];

  std::fill_n(partial.sums, padded * head_dim, 0.0f);
  std::fill_n(partial.peaks, padded, std::numeric_limits<float>::lowest());
  std::fill_n(partial.weights, padded, 0.0f);
  // A row sees the block's tokens from hidden(row) to visible(row); padding rows count as the last query's.
  std::int64_t block_begin = std::int64_t{span.first_token} - span.lead;  // token of the table
  const auto query_of = [&](std::uint32_t row) { return std::min(row / rows.group, rows.query_count - 1); };
  const auto within = [&](std::uint32_t token) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(token - block_begin, 0, block.tokens()));
  };
  const auto visible = [&](std::uint32_t row) { return within(rows.visible + query_of(row)); };
  const auto hidden = [&](std::uint32_t row) {
    return std::max(within(rows.hidden(query_of(row))), within(span.first_token));
  };
  for (; block.take(); block_begin += block.tokens()) {
    for (std::uint32_t row = 0; row < padded; row += kRowGroup) {
      const std::uint32_t depth = visible(row + kRowGroup - 1);
      if (depth == 0 || hidden(row) == block.tokens()) continue;
      float* sums = partial.sums + row * head_dim;
      multiply(queries + row * head_dim, head_dim, block.keys(), kTileKeyStride, head_dim, round_up(depth, 16), scores,
               kBlockTokens, false);
      for (std::uint64_t holes = block.holes(); holes != 0; holes &= holes - 1) {
        for (std::uint32_t r = 0; r < kRowGroup; ++r) {
          scores[r * kBlockTokens + static_cast<std::uint32_t>(std::countr_zero(holes))] =
              -std::numeric_limits<float>::infinity();
        }
      }
      for (std::uint32_t r = 0; r < kRowGroup; ++r) {
        float* of_row = scores + r * kBlockTokens;
        leave_out_unseen(of_row, depth, hidden(row + r), visible(row + r));
        const float shrink = soften(of_row, depth, partial.peaks[row + r], partial.weights[row + r]);
        if (shrink == 1) continue;
        const Eight d;
        float* older = sums + r * head_dim;
        for (std::size_t c = 0; c < head_dim; c += hn::Lanes(d)) {
          hn::StoreU(hn::Mul(hn::Set(d, shrink), hn::LoadU(d, older + c)), d, older + c);
        }
      }
      multiply(scores, kBlockTokens, block.values(), head_dim, depth, head_dim, sums, head_dim, true);
    }
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
