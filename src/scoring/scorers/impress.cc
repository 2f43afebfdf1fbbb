// impress (Chen et al., FAST 2025; as EvicPress, arXiv 2512.14946, has it as a baseline): three heads rank the tokens
// for all. A token's importance is the mean of snapkv's scores, not pooled, over the layer's first three KV heads (all
// where there are fewer). Tokens are loaded in chunks of 64 from the context's start, whole where they hold one that is
// important, so each token gets the largest importance in its chunk: unimportant neighbours ride along.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scoring/registry.h"

namespace shale {
namespace {

constexpr std::uint32_t kHeads = 3, kChunkTokens = 64;
constexpr float kUnusable = -std::numeric_limits<float>::infinity();

class Impress final : public Scorer {
 public:
  explicit Impress(std::unique_ptr<Scorer> attention) : attention_(std::move(attention)) {}
  std::string_view name() const override { return "impress"; }
  ScorerNeeds needs() const override { return attention_->needs(); }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { score_layer(layer, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { score_layer(layer, scores); }

  template <class Element>
  void score_layer(const LayerKv<Element>& layer, std::span<float> scores) const {
    attention_->score(layer, scores);
    const std::size_t n = layer.tokens, heads = std::min(kHeads, layer.kv_heads);
    std::vector<float> importance(n);
    for (std::size_t i = 0; i < heads * n; ++i) {
      importance[i % n] += std::isinf(scores[i]) ? 0 : scores[i] / static_cast<float>(heads);
    }
    for (std::size_t first = 0; first < n; first += kChunkTokens) {
      const auto chunk = std::span(importance).subspan(first, std::min<std::size_t>(kChunkTokens, n - first));
      std::ranges::fill(chunk, std::ranges::max(chunk));
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] != kUnusable) scores[i] = importance[i % n];
    }
  }

  std::unique_ptr<Scorer> attention_;
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_impress(const ScorerOptions& options) {
  SHALE_TRY(check_window("impress", options));
  SHALE_ASSIGN(auto attention, make_snapkv({.window = options.window, .kernel = 1}));
  return std::make_unique<Impress>(std::move(attention));
}

}  // namespace shale
