// expected_attention (Devoto et al. 2025, arXiv 2510.00636): the attention that queries to come can be expected to pay.
// With mean μ and covariance Σ of the context's queries before RoPE, without those of the kMomentSinks first tokens,
// both turned by the mean rotation of the next kFuture positions: softmax_i(k_iᵀμ/√d + k_iᵀΣk_i/(2d)), mean over the KV
// head's query heads, times ‖v_i‖. The first tokens are left out of the softmax and rank first: the layer's maximum
// + 1.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/expected_attention.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <complex>
#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/registry.h"
#include "scoring/scorers/window.h"

HWY_BEFORE_NAMESPACE();
namespace shale::expected_attention::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// Logits of a head's tokens, [keys.padded()], under one query head: linear · k + kᵀ · quadratic · k. `form` holds the
// linear part [head_dim], then the quadratic one, symmetric, in blocks of kBlock rows, [block][head_dim][kBlock]: of
// each the columns from its own first on count, those of later blocks doubled.
inline void apply(const float* form, const HeadKeys& keys, std::uint32_t tokens, std::uint32_t head_dim,
                  float* logits) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  const float* quadratic = form + head_dim;
  for (std::uint32_t first = 0; first < tokens; first += tile_width()) {
    const float* tile = keys.tile(first);
    hn::Vec<Wide> sums[kVectors];
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Zero(d);
      for (std::uint32_t c = 0; c < head_dim; ++c) {
        const auto key = hn::Load(d, tile + std::size_t{c} * tile_width() + v * lanes);
        sums[v] = hn::MulAdd(key, hn::Set(d, form[c]), sums[v]);
      }
    }
    for (std::uint32_t row = 0; row < head_dim; row += kBlock) {
      hn::Vec<Wide> products[kVectors * kBlock];
      for (auto& product : products) product = hn::Zero(d);
      multiply_tile(tile + std::size_t{row} * tile_width(), quadratic + (std::size_t{row} * head_dim + row * kBlock),
                    head_dim - row, products);
      for (std::uint32_t r = 0; r < std::min(kBlock, head_dim - row); ++r) {
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          const auto key = hn::Load(d, tile + std::size_t{row + r} * tile_width() + v * lanes);
          sums[v] = hn::MulAdd(products[v * kBlock + r], key, sums[v]);
        }
      }
    }
    for (std::uint32_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, logits + first + v * lanes);
  }
}

// Adds softmax(logits) · scale to the scores of tokens from `first` on, whose keys count. Logits are lost.
inline void add_softmax(const HeadKeys& keys, std::uint32_t first, std::span<float> logits, float scale,
                        std::span<float> scores) {
  float maximum = std::numeric_limits<float>::lowest();
  double total = 0;
  for (std::size_t i = first; i < logits.size(); ++i) {
    if (!keys.usable(static_cast<std::uint32_t>(i)) || !std::isfinite(logits[i])) logits[i] = -HUGE_VALF;
    maximum = std::max(maximum, logits[i]);
  }
  for (std::size_t i = first; i < logits.size(); ++i) total += logits[i] = std::exp(logits[i] - maximum);
  if (total == 0) return;
  for (std::size_t i = first; i < logits.size(); ++i) scores[i] += logits[i] * static_cast<float>(scale / total);
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, std::span<const float> forms, std::span<float> scores) {
  const std::uint32_t n = layer.tokens, sinks = std::min(kMomentSinks, n);
  const std::uint32_t group = sinks < n ? layer.query_heads / layer.kv_heads : 0;
  std::ranges::fill(scores, 0.0f);
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    const std::span head_scores = scores.subspan(std::size_t{head} * n, n);
    HeadKeys keys(layer, head);
    const auto logits = hwy::AllocateAligned<float>(keys.padded());
    for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
      apply(&forms[h * (forms.size() / layer.query_heads)], keys, n, layer.head_dim, logits.get());
      add_softmax(keys, sinks, {logits.get(), n}, 1.0f / static_cast<float>(group), head_scores);
    }
    with_page_lanes(layer.block_size, [&](auto d) HWY_ATTR {
      for (std::uint32_t i = 0; i < n; ++i) {
        const auto* values = layer.head(head)[i / layer.block_size].values;
        const float squares =
            value_squares(d, values + std::size_t{i % layer.block_size} * layer.head_dim, layer.head_dim);
        head_scores[i] = keys.usable(i) && squares <= FLT_MAX ? head_scores[i] * std::sqrt(squares) : kNan;
      }
    });
  }
  put_first(scores, n, 0, sinks);
}

void score_half(const LayerKv<Half>& layer, std::span<const float> forms, std::span<float> scores) {
  score_layer(layer, forms, scores);
}
void score_float(const LayerKv<float>& layer, std::span<const float> forms, std::span<float> scores) {
  score_layer(layer, forms, scores);
}

}  // namespace shale::expected_attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace expected_attention {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

constexpr std::uint32_t kFuture = 512;  // positions
using HWY_NAMESPACE::kBlock;

// The mean of e^(i · frequency · position) over `count` positions from `first` on: Dirichlet's kernel.
std::complex<double> mean_turn(double frequency, double first, std::uint32_t count) {
  const double half_sine = std::sin(frequency / 2);
  const double shrink = half_sine == 0 ? 1 : std::sin(count * frequency / 2) / (count * half_sine);
  return std::polar(1.0, frequency * (first + (count - 1) / 2.0)) * shrink;
}

// Turns every pair of channels of `rows` vectors, `stride` apart, whose channels lie `step` apart.
void turn(const Rope& rope, std::span<const std::complex<double>> turns, double* vectors, std::size_t rows,
          std::size_t stride, std::size_t step) {
  for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
    const auto [real, imaginary] = rope.channels(pair);
    for (std::size_t row = 0; row < rows; ++row) {
      double &x = vectors[row * stride + real * step], &y = vectors[row * stride + imaginary * step];
      const std::complex<double> turned = std::complex(x, y) * turns[pair];
      x = turned.real();
      y = turned.imag();
    }
  }
}

// What the kernel applies, of all query heads.
template <class Element>
std::vector<float> forms_of(const LayerKv<Element>& layer) {
  const std::size_t d = layer.head_dim, blocks = (d + kBlock - 1) / kBlock;
  const double scale = double{layer.scale()};
  std::vector<std::complex<double>> turns;
  for (std::uint32_t pair = 0; pair < layer.rope.pairs(); ++pair) {
    turns.push_back(
        mean_turn(layer.rope.frequency(pair), static_cast<double>(layer.first_position) + layer.tokens, kFuture));
  }
  std::vector<float> forms(layer.query_heads * (d + blocks * d * kBlock));
  for (std::size_t head = 0; head < layer.query_heads; ++head) {
    float* linear = &forms[head * (d + blocks * d * kBlock)];
    float* quadratic = linear + d;
    const auto of_head = [&](std::span<const float> moments, std::size_t size) {
      return std::vector<double>(&moments[head * size], &moments[head * size] + size);
    };
    std::vector<double> mean = of_head(layer.query_mean, d), covariance = of_head(layer.query_covariance, d * d);
    turn(layer.rope, turns, mean.data(), 1, 0, 1);
    turn(layer.rope, turns, covariance.data(), d, d, 1);
    turn(layer.rope, turns, covariance.data(), d, 1, d);
    for (std::size_t c = 0; c < d; ++c) linear[c] = static_cast<float>(mean[c] * scale);
    for (std::size_t row = 0; row < d; ++row) {
      const std::size_t first = row / kBlock * kBlock;
      for (std::size_t c = first; c < d; ++c) {
        const double both = c < first + kBlock ? 1 : 2;
        quadratic[first * d + c * kBlock + row % kBlock] =
            static_cast<float>(both * covariance[row * d + c] * scale * scale / 2);
      }
    }
  }
  return forms;
}

class ExpectedAttention final : public Scorer {
 public:
  std::string_view name() const override { return "expected_attention"; }
  ScorerNeeds needs() const override { return {.keys = true, .values = true, .query_moments = true, .rope = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    const std::vector<float> forms = layer.tokens > kMomentSinks ? forms_of(layer) : std::vector<float>();
    HWY_DYNAMIC_DISPATCH(score_half)(layer, forms, scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    const std::vector<float> forms = layer.tokens > kMomentSinks ? forms_of(layer) : std::vector<float>();
    HWY_DYNAMIC_DISPATCH(score_float)(layer, forms, scores);
  }
};

}  // namespace expected_attention

Result<std::unique_ptr<Scorer>> make_expected_attention(const ScorerOptions&) {
  return std::make_unique<expected_attention::ExpectedAttention>();
}

}  // namespace shale
#endif
