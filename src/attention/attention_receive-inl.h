// Which attention each token receives from many rows whose denominators are known: a product with the keys and an
// exponential, no values and no search for the peak. Arithmetic bound, as attention itself over many rows.
#if defined(SHALE_ATTENTION_RECEIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_ATTENTION_RECEIVE_INL_H_
#undef SHALE_ATTENTION_RECEIVE_INL_H_
#else
#define SHALE_ATTENTION_RECEIVE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>

#include "attention/attention_kernels.h"
#include "attention/attention_simd-inl.h"
#include "attention/attention_tile-inl.h"
#include "core/aligned_buffer.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// kRowGroup rows of one query head. Where there are fewer, the last is repeated and receives nothing.
struct ReceivingRows {
  std::array<const float*, kRowGroup> queries;
  std::array<float, kRowGroup> log2_sums;  // infinite for a repeated row
  // The row sees the block's tokens from `hidden` to `depth`.
  std::array<std::uint32_t, kRowGroup> hidden, depth;
};

// received[kVectors vectors] gathers 2^(factor · query · key - log2_sum), or for kLargest the largest exponent.
template <bool kLargest, class D, int kVectors>
HWY_INLINE void receive_panel(D d, const ReceivingRows& rows, float factor, const float* keys, std::size_t head_dim,
                              std::uint32_t first, float* received) {
  constexpr int kRows = kRowGroup;
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  hn::Vec<D> dot[kRows * kVectors];
  for (auto& each : dot) each = hn::Zero(d);
  for (std::size_t c = 0; c < head_dim; ++c) {
    hn::Vec<D> key[kVectors];
    for (int v = 0; v < kVectors; ++v) key[v] = hn::LoadU(d, keys + c * kTileKeyStride + first + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto query = hn::Set(d, rows.queries[r][c]);
      for (int v = 0; v < kVectors; ++v) dot[r * kVectors + v] = hn::MulAdd(query, key[v], dot[r * kVectors + v]);
    }
  }
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int v = 0; v < kVectors; ++v) {
    const std::uint32_t at = first + v * lanes;
    auto gathered = hn::LoadU(d, received + at);
    for (int r = 0; r < kRows; ++r) {
      auto exponent = hn::MulSub(dot[r * kVectors + v], hn::Set(d, factor), hn::Set(d, rows.log2_sums[r]));
      if (at + lanes > rows.depth[r]) {
        const std::uint32_t seen = rows.depth[r] > at ? rows.depth[r] - at : 0;
        exponent = hn::IfThenElse(hn::FirstN(d, seen), exponent, nothing);
      }
      if (at < rows.hidden[r]) {
        exponent = hn::IfThenElse(hn::FirstN(d, std::min(rows.hidden[r] - at, lanes)), nothing, exponent);
      }
      gathered = kLargest ? hn::Max(gathered, exponent) : hn::Add(gathered, exp2_negative(d, exponent));
    }
    hn::StoreU(gathered, d, received + at);
  }
}

template <bool kLargest>
void receive_block(const ReceivingRows& rows, float factor, const float* keys, std::size_t head_dim,
                   std::uint32_t tokens, float* received) {
  const Wide d;
  const std::uint32_t panel = kPanelVectors * static_cast<std::uint32_t>(hn::Lanes(d));
  for (std::uint32_t first = 0; first < tokens; first += panel) {
    receive_panel<kLargest, Wide, kPanelVectors>(d, rows, factor, keys, head_dim, first, received);
  }
}

template <class View, bool kLargest>
void receive_slots(const HostView& pool, const AttentionRows& rows, const float* log_sums, std::size_t log_sum_stride,
                   const PageSlots& slots, std::uint32_t first_token, float* received) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float factor = rows.scale * std::numbers::log2e_v<float>;
  thread_local AlignedBuffer memory;
  TileBlock<View> block(pool, slots, 0, memory.floats(rows.head_dim * kTileKeyStride), nullptr);
  HWY_ALIGN float gathered[kBlockTokens];
  for (; block.take(); first_token += block.tokens(), received += block.tokens()) {
    std::fill_n(gathered, kBlockTokens, kLargest ? -kInfinity : 0.0f);
    // The queries that see any token of the block.
    const std::uint32_t first_query = first_token >= rows.visible ? first_token - rows.visible + 1 : 0;
    const std::uint32_t in_sight = first_token + block.tokens() + rows.window;
    const std::uint32_t end_query =
        rows.window ? std::min(rows.query_count, std::max(in_sight, rows.visible) - rows.visible) : rows.query_count;
    for (std::uint32_t head = 0; head < rows.group; ++head) {
      for (std::uint32_t query = first_query; query < end_query; query += kRowGroup) {
        ReceivingRows each;
        for (std::uint32_t r = 0; r < kRowGroup; ++r) {
          const std::uint32_t q = std::min(query + r, rows.query_count - 1);
          each.queries[r] = rows.queries + q * rows.query_stride + std::size_t{head} * rows.head_dim;
          each.log2_sums[r] =
              query + r == q ? log_sums[q * log_sum_stride + head] * std::numbers::log2e_v<float> : kInfinity;
          each.hidden[r] = std::min(std::max(rows.hidden(q), first_token) - first_token, kBlockTokens);
          each.depth[r] = std::min(rows.visible + q - first_token, kBlockTokens);
        }
        receive_block<kLargest>(each, factor, block.keys(), rows.head_dim, block.tokens(), gathered);
      }
    }
    for (std::uint32_t t = 0; t < block.tokens(); ++t)
      received[t] = kLargest ? exp2_negative(gathered[t]) : gathered[t];
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
