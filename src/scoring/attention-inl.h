// Softmax attention of a context's last queries, recomputed for scorers: kBlock queries of one head against all keys at
// a time, so that memory grows with tokens, never with tokens × queries.
#if defined(SHALE_SCORING_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_SCORING_ATTENTION_INL_H_
#undef SHALE_SCORING_ATTENTION_INL_H_
#else
#define SHALE_SCORING_ATTENTION_INL_H_
#endif

#include <hwy/aligned_allocator.h>
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "scoring/keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

using Wide = hn::CappedTag<float, 16>;

inline constexpr std::uint32_t kBlock = 8;                              // queries whose dot products run side by side
inline constexpr std::uint32_t kVectors = HWY_MAX_BYTES >= 64 ? 2 : 1;  // of keys, beside them: what registers hold
inline constexpr float kMasked = -FLT_MAX;                              // the logit of a key that is not seen
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Attention of up to kBlock consecutive queries of one query head: the weight of token i under query q is
// rows[q][i] · inverse[q].
struct AttentionBlock {
  std::uint32_t queries = 0;
  std::uint32_t first = 0;  // token of the first query
  std::uint32_t seen = 0;   // tokens that the last query sees; rows hold zeros from there up to whole vectors
  const float* rows[kBlock] = {};
  float inverse[kBlock] = {};  // one over the row's sum; 0 for a query that is not finite or sees nothing
};

// Adds to sums[vector · kBlock + row] what kBlock rows [channels][kBlock] make of a tile of keys
// [channels][tile_width()].
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT keys, const float* HWY_RESTRICT rows, std::uint32_t channels,
                              hn::Vec<Wide>* HWY_RESTRICT to) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Wide> sums[kVectors * kBlock];
  for (std::uint32_t i = 0; i < kVectors * kBlock; ++i) sums[i] = to[i];
  for (std::uint32_t c = 0; c < channels; ++c, keys += kVectors * lanes, rows += kBlock) {
    HWY_UNROLL(kVectors)
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const auto key = hn::Load(d, keys + v * lanes);
      HWY_UNROLL(kBlock)
      for (std::uint32_t r = 0; r < kBlock; ++r) {
        sums[v * kBlock + r] = hn::MulAdd(key, hn::Set(d, rows[r]), sums[v * kBlock + r]);
      }
    }
  }
  for (std::uint32_t i = 0; i < kVectors * kBlock; ++i) to[i] = sums[i];
}

inline std::uint32_t tile_width() { return kVectors * static_cast<std::uint32_t>(hn::Lanes(Wide())); }

// The keys of one KV head, as float tiles [tile][head_dim][tile_width()]. A key counts where its squared norm is
// finite.
class HeadKeys {
 public:
  template <class Element>
  HeadKeys(const LayerKv<Element>& layer, std::uint32_t head)
      : tokens_(layer.tokens),
        head_dim_(layer.head_dim),
        scale_(layer.scale()),
        padded_((layer.tokens + tile_width() - 1) / tile_width() * tile_width()),
        tiles_(hwy::AllocateAligned<float>(std::size_t{padded_} * layer.head_dim)),
        mask_(hwy::AllocateAligned<float>(padded_)),
        packed_(hwy::AllocateAligned<float>(std::size_t{kBlock} * layer.head_dim)),
        rows_(hwy::AllocateAligned<float>(std::size_t{kBlock} * padded_)) {
    const std::size_t last_tile = std::size_t{tile_width()} * head_dim_;
    std::fill_n(&tiles_[std::size_t{padded_} * head_dim_ - last_tile], last_tile, 0.0f);
    std::fill_n(mask_.get(), padded_, kMasked);
    with_page_lanes(layer.block_size, [&](auto d) HWY_ATTR { copy_keys(d, layer, head); });
  }

  // Tokens, up to whole vectors.
  std::uint32_t padded() const { return padded_; }
  // The tile of tokens [first, first + tile_width()), `first` a multiple of it; keys that do not count are zeros.
  const float* tile(std::uint32_t first) const { return &tiles_[std::size_t{first} * head_dim_]; }
  bool usable(std::uint32_t token) const { return mask_[token] == 0; }

  // Attention of `count` queries [count][head_dim] of tokens first, first + 1 …, each over the keys up to its own. The
  // rows stand until the next call.
  AttentionBlock attend(const float* queries, std::uint32_t first, std::uint32_t count) {
    AttentionBlock block{.queries = count, .first = first, .seen = first + count};
    bool finite[kBlock];
    pack(queries, count, finite);
    for (std::uint32_t tile = 0; tile < block.seen; tile += tile_width()) multiply(tile);
    for (std::uint32_t q = 0; q < count; ++q) {
      float* row = &rows_[std::size_t{q} * padded_];
      const float inverse = exponentials(row, first + q + 1, block.seen);
      block.rows[q] = row;
      block.inverse[q] = finite[q] ? inverse : 0.0f;
    }
    return block;
  }

 private:
  template <class D, class Element>
  void copy_keys(D d, const LayerKv<Element>& layer, std::uint32_t head) {
    const auto pages = layer.head(head);
    const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
    for (std::uint32_t token = 0; token < tokens_; token += lanes) {
      const Element* keys = pages[token / layer.block_size].keys + token % layer.block_size;
      float* tile = &tiles_[std::size_t{token - token % tile_width()} * head_dim_ + token % tile_width()];
      const auto exists = hn::FirstN(d, tokens_ - token);
      auto squares = hn::Zero(d);
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        const auto key = hn::IfThenElseZero(exists, load(d, keys + std::size_t{c} * layer.block_size));
        squares = hn::MulAdd(key, key, squares);
        hn::StoreU(key, d, tile + std::size_t{c} * tile_width());
      }
      const auto usable = hn::And(exists, hn::Lt(squares, hn::Inf(d)));
      hn::StoreU(hn::IfThenZeroElse(usable, hn::Set(d, kMasked)), d, &mask_[token]);
      if (hn::AllTrue(d, usable)) continue;
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        float* keys_of_channel = tile + std::size_t{c} * tile_width();
        hn::StoreU(hn::IfThenElseZero(usable, hn::LoadU(d, keys_of_channel)), d, keys_of_channel);
      }
    }
  }

  // Queries to [head_dim][kBlock], scaled; zeros for those that are missing or not finite.
  void pack(const float* queries, std::uint32_t count, bool* finite) {
    std::fill_n(packed_.get(), std::size_t{kBlock} * head_dim_, 0.0f);
    for (std::uint32_t q = 0; q < count; ++q) {
      const float* query = queries + std::size_t{q} * head_dim_;
      float squares = 0;
      for (std::uint32_t c = 0; c < head_dim_; ++c) squares += query[c] * query[c];
      finite[q] = squares <= FLT_MAX;
      if (!finite[q]) continue;
      for (std::uint32_t c = 0; c < head_dim_; ++c) packed_[c * kBlock + q] = query[c] * scale_;
    }
  }

  // Logits of the packed queries against one tile of keys.
  void multiply(std::uint32_t first) {
    const Wide d;
    const std::size_t lanes = hn::Lanes(d);
    hn::Vec<Wide> sums[kVectors * kBlock];
    for (std::uint32_t i = 0; i < kVectors * kBlock; ++i) sums[i] = hn::Load(d, &mask_[first + i / kBlock * lanes]);
    multiply_tile(tile(first), packed_.get(), head_dim_, sums);
    for (std::uint32_t i = 0; i < kVectors * kBlock; ++i) {
      hn::Store(sums[i], d, &rows_[std::size_t{i % kBlock} * padded_ + first + i / kBlock * lanes]);
    }
  }

  // Turns the logits of a query that sees `seen` tokens into e^(logit - maximum); those from there up to whole vectors
  // of `end` into zeros. Returns one over their sum, or 0 where no key is usable.
  float exponentials(float* row, std::uint32_t seen, std::uint32_t end) const {
    const Wide d;
    const std::size_t lanes = hn::Lanes(d);
    const std::size_t padded = (end + lanes - 1) / lanes * lanes;
    std::fill(row + seen, row + padded, kMasked);
    auto maxima = hn::Set(d, kMasked);
    for (std::size_t i = 0; i < seen; i += lanes) maxima = hn::Max(maxima, hn::Load(d, row + i));
    const auto maximum = hn::MaxOfLanes(d, maxima);
    if (hn::GetLane(maximum) == kMasked) {
      std::fill_n(row, padded, 0.0f);
      return 0;
    }
    auto sums = hn::Zero(d);
    for (std::size_t i = 0; i < padded; i += lanes) {
      const auto power = hn::Exp(d, hn::Sub(hn::Load(d, row + i), maximum));
      hn::Store(power, d, row + i);
      sums = hn::Add(sums, power);
    }
    return 1.0f / hn::GetLane(hn::SumOfLanes(d, sums));
  }

  std::uint32_t tokens_, head_dim_;
  float scale_;
  std::uint32_t padded_;
  hwy::AlignedFreeUniquePtr<float[]> tiles_, mask_, packed_, rows_;
};

// Calls visit(block) for the last `window` queries of every query head of a KV head, or as many as there are. Heads run
// inside: blocks of the same queries of all heads follow each other.
template <class Element, class Visit>
void for_each_block(const LayerKv<Element>& layer, std::uint32_t head, std::uint32_t window, HeadKeys& keys,
                    const Visit& visit) {
  const std::uint32_t group = layer.query_heads / layer.kv_heads;
  const std::uint32_t start = layer.window_tokens - std::min(window, layer.window_tokens);
  for (std::uint32_t row = start; row < layer.window_tokens; row += kBlock) {
    const std::uint32_t count = std::min(kBlock, layer.window_tokens - row);
    for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
      const float* queries = &layer.queries[(std::size_t{h} * layer.window_tokens + row) * layer.head_dim];
      visit(keys.attend(queries, layer.tokens - layer.window_tokens + row, count));
    }
  }
}

// Adds to mass[i] the attention that token i receives, summed over the last `window` queries, mean over the KV head's
// query heads; makes it NaN where the token's key does not count.
template <class Element>
void add_attention(const LayerKv<Element>& layer, std::uint32_t head, std::uint32_t window, std::span<float> mass) {
  const Wide d;
  HeadKeys keys(layer, head);
  const auto sums = hwy::AllocateAligned<float>(keys.padded());
  std::fill_n(sums.get(), keys.padded(), 0.0f);
  for_each_block(layer, head, window, keys, [&](const AttentionBlock& block) HWY_ATTR {
    for (std::size_t i = 0; i < block.seen; i += hn::Lanes(d)) {
      auto sum = hn::Load(d, &sums[i]);
      for (std::uint32_t q = 0; q < block.queries; ++q) {
        sum = hn::MulAdd(hn::Load(d, block.rows[q] + i), hn::Set(d, block.inverse[q]), sum);
      }
      hn::Store(sum, d, &sums[i]);
    }
  });
  const float scale = static_cast<float>(layer.kv_heads) / static_cast<float>(layer.query_heads);
  for (std::uint32_t i = 0; i < layer.tokens; ++i) mass[i] = keys.usable(i) ? mass[i] + sums[i] * scale : kNan;
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
