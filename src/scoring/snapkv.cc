// snapkv (Li et al. 2024, arXiv 2404.14469): the softmax attention of the last `window` queries over all keys, causal
// inside the window; without the window's own columns; mean over the window's queries and the KV head's query heads;
// average pooling along tokens of width `kernel`, zero-padded, the divisor always `kernel`. The window's own tokens get
// the layer's maximum over KV heads + 1. With no more tokens than the window, all tie.
//
// Attention is recomputed tile by tile in two passes, the first for each query's maximum and denominator, the second
// for the mass that each token receives: memory grows with tokens + queries, never with their product. Maxima and
// denominators are kept a lane each and merged between the passes. Tokens whose logits are not finite receive nothing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/snapkv.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <hwy/aligned_allocator.h>
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scoring/keys-inl.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::snapkv::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

constexpr std::uint32_t kBlock = 8;     // queries whose dot products run side by side
constexpr float kMasked = -1e30f;       // a logit that receives nothing
constexpr float kLargestLogit = 1e29f;  // beyond it: treated as not finite
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Queries of one KV head's window, scaled by 1/√d: blocks of kBlock, [block][head_dim][kBlock], and the softmax state
// of each query, a lane each: [query][lanes].
struct Window {
  std::uint32_t queries = 0;
  std::vector<float> packed;
  std::vector<std::uint32_t> positions;  // a query sees keys up to its own
  std::vector<float> maxima, denominators;
};

template <class Element>
Window pack_window(const LayerKv<Element>& layer, std::uint32_t head, std::uint32_t window, std::size_t lanes) {
  const std::uint32_t group = layer.query_heads / layer.kv_heads;
  const std::uint32_t d = layer.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  Window w;
  w.queries = group * window;
  const std::size_t padded = (w.queries + kBlock - 1) / kBlock * kBlock;
  w.packed.resize(padded * d);
  w.positions.resize(padded, layer.tokens - 1);
  w.maxima.assign(padded * lanes, kMasked);
  w.denominators.assign(padded * lanes, 0.0f);
  for (std::uint32_t q = 0; q < w.queries; ++q) {
    const std::uint32_t row = layer.window_tokens - window + q % window;
    const float* query = &layer.queries[(std::size_t{head * group + q / window} * layer.window_tokens + row) * d];
    float* block = &w.packed[std::size_t{q / kBlock} * kBlock * d];
    for (std::uint32_t c = 0; c < d; ++c) block[c * kBlock + q % kBlock] = query[c] * scale;
    w.positions[q] = layer.tokens - window + q % window;
  }
  return w;
}

// Logits of kBlock queries against the lanes of a tile, [kBlock][lanes].
template <class D>
HWY_INLINE void block_logits(D d, const float* HWY_RESTRICT tile, const float* HWY_RESTRICT block,
                             std::uint32_t head_dim, float* HWY_RESTRICT logits) {
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  auto s4 = hn::Zero(d), s5 = hn::Zero(d), s6 = hn::Zero(d), s7 = hn::Zero(d);
  for (std::uint32_t c = 0; c < head_dim; ++c, tile += lanes, block += kBlock) {
    const auto key = hn::Load(d, tile);
    s0 = hn::MulAdd(key, hn::Set(d, block[0]), s0);
    s1 = hn::MulAdd(key, hn::Set(d, block[1]), s1);
    s2 = hn::MulAdd(key, hn::Set(d, block[2]), s2);
    s3 = hn::MulAdd(key, hn::Set(d, block[3]), s3);
    s4 = hn::MulAdd(key, hn::Set(d, block[4]), s4);
    s5 = hn::MulAdd(key, hn::Set(d, block[5]), s5);
    s6 = hn::MulAdd(key, hn::Set(d, block[6]), s6);
    s7 = hn::MulAdd(key, hn::Set(d, block[7]), s7);
  }
  hn::Store(s0, d, logits + 0 * lanes);
  hn::Store(s1, d, logits + 1 * lanes);
  hn::Store(s2, d, logits + 2 * lanes);
  hn::Store(s3, d, logits + 3 * lanes);
  hn::Store(s4, d, logits + 4 * lanes);
  hn::Store(s5, d, logits + 5 * lanes);
  hn::Store(s6, d, logits + 6 * lanes);
  hn::Store(s7, d, logits + 7 * lanes);
}

// Calls visit(query, token, logits, usable) for every query and every tile of `lanes` tokens, tile by tile, where
// `usable` says which of the tile's tokens exist and have finite keys; end_tile(token, usable) after each tile. Logits
// of tokens that a query must not see, or that are not finite, are kMasked.
template <class Element, class D, class Visit, class EndTile>
void for_each_logit(const LayerKv<Element>& layer, std::uint32_t head, D d, const Window& window, const Visit& visit,
                    const EndTile& end_tile) {
  const auto pages = layer.head(head);
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto tile = hwy::AllocateAligned<float>(std::size_t{layer.head_dim} * lanes);
  HWY_ALIGN float logits[kBlock * 16];
  for (std::uint32_t token = 0; token < layer.tokens; token += lanes) {
    const std::uint32_t slot = token % layer.page_tokens;
    const Element* keys = pages[token / layer.page_tokens].keys + slot;
    auto magnitude = hn::Zero(d);
    for (std::uint32_t c = 0; c < layer.head_dim; ++c) {
      const auto key = load(d, keys + std::size_t{c} * layer.page_tokens);
      magnitude = hn::Add(magnitude, hn::Abs(key));
      hn::Store(key, d, tile.get() + std::size_t{c} * lanes);
    }
    const auto usable = hn::And(hn::FirstN(d, layer.tokens - token), hn::Lt(magnitude, hn::Inf(d)));
    for (std::uint32_t q = 0; q < window.queries; q += kBlock) {
      block_logits(d, tile.get(), &window.packed[std::size_t{q} * layer.head_dim], layer.head_dim, logits);
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        const std::uint32_t position = window.positions[q + i];
        const auto raw = hn::Load(d, logits + i * lanes);
        auto seen = hn::And(usable, hn::Lt(hn::Abs(raw), hn::Set(d, kLargestLogit)));
        if (token + lanes > position) seen = hn::And(seen, hn::FirstN(d, position < token ? 0 : position + 1 - token));
        visit(q + i, hn::IfThenElse(seen, raw, hn::Set(d, kMasked)));
      }
    }
    end_tile(token, usable);
  }
}

// Attention mass that each token receives, summed over the window's queries; NaN for tokens whose keys are not finite.
template <class Element, class D>
void attention_mass(const LayerKv<Element>& layer, std::uint32_t head, std::uint32_t window_tokens, D d, float* mass) {
  const std::size_t lanes = hn::Lanes(d);
  Window window = pack_window(layer, head, window_tokens, lanes);
  for_each_logit(
      layer, head, d, window,
      [&](std::uint32_t q, hn::Vec<D> logits) HWY_ATTR {
        float* HWY_RESTRICT maximum = &window.maxima[q * lanes];
        float* HWY_RESTRICT denominator = &window.denominators[q * lanes];
        const auto old_max = hn::LoadU(d, maximum);
        const auto new_max = hn::Max(old_max, logits);
        const auto rescaled = hn::Mul(hn::LoadU(d, denominator), hn::Exp(d, hn::Sub(old_max, new_max)));
        hn::StoreU(hn::Add(rescaled, hn::Exp(d, hn::Sub(logits, new_max))), d, denominator);
        hn::StoreU(new_max, d, maximum);
      },
      [](std::uint32_t, hn::Mask<D>) {});

  // Per query: the maximum over lanes, and one over the denominator.
  for (std::uint32_t q = 0; q < window.queries; ++q) {
    const std::span lane_max = std::span(window.maxima).subspan(q * lanes, lanes);
    const float maximum = *std::max_element(lane_max.begin(), lane_max.end());
    float denominator = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      denominator += window.denominators[q * lanes + lane] * std::exp(lane_max[lane] - maximum);
    }
    window.maxima[q * lanes] = maximum;
    window.denominators[q * lanes] = maximum > kMasked ? 1.0f / denominator : 0.0f;
  }

  auto sum = hn::Zero(d);
  for_each_logit(
      layer, head, d, window,
      [&](std::uint32_t q, hn::Vec<D> logits) HWY_ATTR {
        if (q >= window.queries) return;
        const auto weight = hn::Exp(d, hn::Sub(logits, hn::Set(d, window.maxima[q * lanes])));
        sum = hn::MulAdd(weight, hn::Set(d, window.denominators[q * lanes]), sum);
      },
      [&](std::uint32_t token, hn::Mask<D> usable) HWY_ATTR {
        store_first(d, hn::IfThenElse(usable, sum, hn::Set(d, kNan)), mass + token, layer.tokens - token);
        sum = hn::Zero(d);
      });
}

// Average pooling of mass[0, tokens) into scores, zero-padded; NaN stays where it is and counts as zero elsewhere.
inline void pool(std::span<const float> mass, std::uint32_t kernel, float scale, std::span<float> scores) {
  const std::ptrdiff_t tokens = std::ssize(mass), reach = kernel / 2;
  for (std::ptrdiff_t i = 0; i < tokens; ++i) {
    float sum = 0;
    const std::ptrdiff_t end = std::min(tokens, i + reach + 1);
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(0, i - reach); j < end; ++j)
      sum += std::isnan(mass[j]) ? 0.0f : mass[j];
    scores[i] = std::isnan(mass[i]) ? kNan : sum * scale;
  }
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, std::uint32_t window, std::uint32_t kernel, float* scores) {
  const std::uint32_t n = layer.tokens, past = n - window;
  const float scale = static_cast<float>(layer.kv_heads) /
                      (static_cast<float>(layer.query_heads) * static_cast<float>(window) * static_cast<float>(kernel));
  std::vector<float> mass(std::size_t{layer.kv_heads} * n);
  float maximum = 0;
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    float* head_mass = &mass[std::size_t{head} * n];
    with_page_lanes(layer.page_tokens, [&](auto d) HWY_ATTR { attention_mass(layer, head, window, d, head_mass); });
    const std::span head_scores(scores + std::size_t{head} * n, past);
    pool({head_mass, past}, kernel, scale, head_scores);
    for (const float score : head_scores) maximum = std::max(maximum, score);  // NaN compares false and is passed over
  }
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    for (std::size_t i = std::size_t{head} * n + past; i < std::size_t{head + 1} * n; ++i) {
      scores[i] = std::isnan(mass[i]) ? kNan : maximum + 1;
    }
  }
}

void score_half(const LayerKv<Half>& layer, std::uint32_t window, std::uint32_t kernel, float* scores) {
  score_layer(layer, window, kernel, scores);
}
void score_float(const LayerKv<float>& layer, std::uint32_t window, std::uint32_t kernel, float* scores) {
  score_layer(layer, window, kernel, scores);
}

}  // namespace shale::snapkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cassert>

namespace shale {
namespace snapkv {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class SnapKv final : public Scorer {
 public:
  SnapKv(std::uint32_t window, std::uint32_t kernel) : window_(window), kernel_(kernel) {}
  std::string_view name() const override { return "snapkv"; }
  ScorerNeeds needs() const override { return {.keys = true, .last_queries = window_}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    if (all_tie(layer, scores)) return;
    HWY_DYNAMIC_DISPATCH(score_half)(layer, window_, kernel_, scores.data());
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    if (all_tie(layer, scores)) return;
    HWY_DYNAMIC_DISPATCH(score_float)(layer, window_, kernel_, scores.data());
  }

  template <class Element>
  bool all_tie(const LayerKv<Element>& layer, std::span<float> scores) const {
    if (layer.tokens > window_) {
      assert(layer.window_tokens >= window_ && layer.query_heads % layer.kv_heads == 0);
      return false;
    }
    std::fill(scores.begin(), scores.end(), 1.0f);
    return true;
  }

  std::uint32_t window_, kernel_;
};

}  // namespace snapkv

Result<std::unique_ptr<Scorer>> make_snapkv(const ScorerOptions& options) {
  if (options.window == 0) return fail(ErrorCode::kInvalidArgument, "snapkv: a window of 0 queries observes nothing");
  if (options.kernel % 2 == 0) {
    return fail(ErrorCode::kInvalidArgument, "snapkv: a pooling kernel of {} has no middle; use an odd one",
                options.kernel);
  }
  return std::make_unique<snapkv::SnapKv>(options.window, options.kernel);
}

}  // namespace shale
#endif
