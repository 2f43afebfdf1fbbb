// triattention (arXiv 2604.04921): attention that queries of the model's usual directions would pay from where it
// stands and further on. A pair of channels of a key before rotation is the complex number k_f of frequency ω_f; of the
// queries before rotation a calibration knows μ_f = E[q_f] and m_f = E|q_f|. With r the next token's position, p_i the
// key's, φ_f = arg(μ_f · conj(k_f)) and offsets δ of 1, 2, 4 … 65,536,
//
//     score(i) = mean over δ of Σ_f |μ_f||k_f| cos(ω_f (r - p_i + δ) + φ_f)  +  Σ_f (m_f - |μ_f|)|k_f|
//
// standardised per query head, the largest over the KV head's query heads. As the cached key is k_f · e^(iω_f p_i), its
// position cancels: the first sum is a dot product of the cached key with μ_f · e^(iω_f r) · mean_δ e^(iω_f δ), and no
// key is turned back. Channels that the model does not rotate count nothing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/triattention.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <complex>
#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/calibration.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::triattention::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// One query head's scores, [keys.padded()], of weights [head_dim] on a key's channels and [pairs] on its pairs'
// lengths.
inline void apply(const Rope& rope, const float* weights, const HeadKeys& keys, std::uint32_t tokens,
                  std::uint32_t head_dim, float* scores) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  const float* of_lengths = weights + head_dim;
  for (std::uint32_t token = 0; token < tokens; token += static_cast<std::uint32_t>(lanes)) {
    const float* tile = keys.tile(token - token % tile_width()) + token % tile_width();
    auto sum = hn::Zero(d);
    for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
      const auto [real, imaginary] = rope.channels(pair);
      const auto x = hn::Load(d, tile + std::size_t{real} * tile_width());
      const auto y = hn::Load(d, tile + std::size_t{imaginary} * tile_width());
      const auto length = hn::Sqrt(hn::MulAdd(x, x, hn::Mul(y, y)));
      sum = hn::MulAdd(x, hn::Set(d, weights[real]), sum);
      sum = hn::MulAdd(y, hn::Set(d, weights[imaginary]), sum);
      sum = hn::MulAdd(length, hn::Set(d, of_lengths[pair]), sum);
    }
    hn::Store(sum, d, scores + token);
  }
}

// Raises `scores` to (raw - mean) / standard deviation over the tokens that count; all alike are 0.
inline void raise_to_standardised(const HeadKeys& keys, std::span<const float> raw, std::span<float> scores) {
  double sum = 0, squares = 0, count = 0;
  for (std::uint32_t i = 0; i < raw.size(); ++i) {
    if (keys.usable(i)) sum += raw[i], ++count;
  }
  const double mean = count > 0 ? sum / count : 0;
  for (std::uint32_t i = 0; i < raw.size(); ++i) {
    if (keys.usable(i)) squares += (raw[i] - mean) * (raw[i] - mean);
  }
  const double inverse = squares > 0 ? 1 / std::sqrt(squares / count) : 0;
  for (std::uint32_t i = 0; i < raw.size(); ++i) {
    scores[i] = std::max(scores[i], static_cast<float>((raw[i] - mean) * inverse));
  }
}

// `weights` are [query_heads][head_dim + pairs].
template <class Element>
void score_layer(const LayerKv<Element>& layer, std::span<const float> weights, std::span<float> scores) {
  const std::uint32_t n = layer.tokens, group = layer.query_heads / layer.kv_heads;
  const std::size_t stride = layer.head_dim + layer.rope.pairs();
  std::ranges::fill(scores, std::numeric_limits<float>::lowest());
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    const std::span head_scores = scores.subspan(std::size_t{head} * n, n);
    const HeadKeys keys(layer, head);
    const auto raw = hwy::AllocateAligned<float>(keys.padded());
    for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
      apply(layer.rope, &weights[h * stride], keys, n, layer.head_dim, raw.get());
      raise_to_standardised(keys, {raw.get(), n}, head_scores);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!keys.usable(i)) head_scores[i] = kNan;
    }
  }
}

void score_half(const LayerKv<Half>& layer, std::span<const float> weights, std::span<float> scores) {
  score_layer(layer, weights, scores);
}
void score_float(const LayerKv<float>& layer, std::span<const float> weights, std::span<float> scores) {
  score_layer(layer, weights, scores);
}

}  // namespace shale::triattention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cassert>

namespace shale {
namespace triattention {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

constexpr int kOffsets = 17;  // 1, 2, 4 … 65,536

template <class Element>
std::vector<float> weights_of(const LayerKv<Element>& layer) {
  const std::uint32_t first_head = layer.first_head * (layer.query_heads / layer.kv_heads);
  assert(layer.calibration->pairs() == layer.rope.pairs() && layer.layer < layer.calibration->layers());
  assert(first_head + layer.query_heads <= layer.calibration->query_heads());
  const double round = static_cast<double>(layer.first_position) + layer.tokens;
  std::vector<std::complex<double>> turns(layer.rope.pairs());
  for (std::uint32_t pair = 0; pair < layer.rope.pairs(); ++pair) {
    const double frequency = layer.rope.frequency(pair);
    for (int i = 0; i < kOffsets; ++i) turns[pair] += std::polar(1.0 / kOffsets, frequency * (round + (1 << i)));
  }
  const std::size_t stride = layer.head_dim + layer.rope.pairs();
  std::vector<float> weights(layer.query_heads * stride);
  for (std::uint32_t head = 0; head < layer.query_heads; ++head) {
    float* of_head = &weights[head * stride];
    const auto pairs = layer.calibration->head(layer.layer, first_head + head);
    for (std::uint32_t pair = 0; pair < layer.rope.pairs(); ++pair) {
      const auto [real, imaginary] = layer.rope.channels(pair);
      const std::complex<double> mean(pairs[pair].real, pairs[pair].imaginary), turned = mean * turns[pair];
      of_head[real] = static_cast<float>(turned.real());
      of_head[imaginary] = static_cast<float>(turned.imag());
      of_head[layer.head_dim + pair] = static_cast<float>(pairs[pair].magnitude - std::abs(mean));
    }
  }
  return weights;
}

class TriAttention final : public Scorer {
 public:
  std::string_view name() const override { return "triattention"; }
  ScorerNeeds needs() const override { return {.keys = true, .rope = true, .calibration = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, weights_of(layer), scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, weights_of(layer), scores);
  }
};

}  // namespace triattention

Result<std::unique_ptr<Scorer>> make_triattention(const ScorerOptions&) {
  return std::make_unique<triattention::TriAttention>();
}

}  // namespace shale
#endif
