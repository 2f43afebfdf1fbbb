// adakv (Feng et al. 2024, arXiv 2407.11550): one pool a layer. Of the uniform number k a head, every head first keeps
// its best max(1, ⌊0.2 k⌋); the rest of the layer's k · heads go to the best remaining tokens of all heads together,
// the newer on ties. Which head keeps more differs with the number, but what is kept at a smaller one stays.
#include <algorithm>

#include "scoring/budgets/budgets.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

constexpr double kSafeguard = 0.2;

class AdaKv final : public Budget {
 public:
  std::string_view name() const override { return "adakv"; }
  bool nested() const override { return true; }

 private:
  Kept select_impl(const ModelScores& scores, double keep, std::uint32_t) const override {
    Kept kept(scores.scores.size());
    const std::size_t n = scores.tokens, layer_size = n * scores.kv_heads;
    const std::uint32_t count = kept_tokens(scores.tokens, keep);
    const auto safe = std::max(1u, static_cast<std::uint32_t>(kSafeguard * count));
    for (std::size_t first = 0; first < kept.size(); first += n) {
      keep_best(scores.scores.subspan(first, n), safe, std::span(kept).subspan(first, n));
    }
    for (std::uint32_t layer = 0; layer < scores.layers; ++layer) {
      const std::size_t begin = layer * layer_size;
      keep_best_of_heads(scores.layer(layer), n, std::size_t{count - safe} * scores.kv_heads,
                         std::span(kept).subspan(begin, layer_size));
    }
    return kept;
  }
};

}  // namespace

std::unique_ptr<Budget> make_adakv() { return std::make_unique<AdaKv>(); }

}  // namespace shale
