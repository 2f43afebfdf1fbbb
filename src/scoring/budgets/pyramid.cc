// pyramid (Cai et al. 2024, arXiv 2406.02069, as the library kvpress rounds it): fewer tokens in higher layers. With b
// the mean number kept, n the context's tokens, lo = b/20 and hi = 2b - lo; where hi reaches n - window, hi is that and
// lo = 2b - hi. Layer l of L keeps round(hi - l · (hi - lo) / (L - 1)), halves to even; unless n ≥ hi ≥ lo ≥ window,
// and for a single layer, every layer keeps max(1, round(b)). A larger b may take tokens from a high layer, so sets do
// not nest.
#include <algorithm>
#include <cmath>

#include "scoring/budgets/budgets.h"

namespace shale {
namespace {

constexpr double kSteepness = 20;

class Pyramid final : public Budget {
 public:
  std::string_view name() const override { return "pyramid"; }
  bool nested() const override { return false; }

 private:
  Kept select_impl(const ModelScores& scores, double keep, std::uint32_t window) const override {
    Kept kept(scores.scores.size());
    const std::size_t n = scores.tokens;
    for (std::size_t first = 0, head = 0; first < kept.size(); first += n, ++head) {
      const auto layer = static_cast<std::uint32_t>(head / scores.kv_heads);
      keep_best(scores.scores.subspan(first, n), count_of(scores, layer, keep, window),
                std::span(kept).subspan(first, n));
    }
    return kept;
  }

  static std::uint32_t count_of(const ModelScores& scores, std::uint32_t layer, double keep, double window) {
    const double n = std::max(scores.context_tokens, scores.tokens), mean = scores.tokens * keep;
    double low = mean / kSteepness, high = 2 * mean - low;
    if (high >= n - window) {
      high = n - window;
      low = 2 * mean - high;
    }
    double count = mean;
    if (scores.layers > 1 && n >= high && high >= low && low >= window) {
      count = high - layer * (high - low) / (scores.layers - 1);
    }
    return static_cast<std::uint32_t>(std::clamp<double>(std::nearbyint(count), 1, scores.tokens));
  }
};

}  // namespace

std::unique_ptr<Budget> make_pyramid() { return std::make_unique<Pyramid>(); }

}  // namespace shale
