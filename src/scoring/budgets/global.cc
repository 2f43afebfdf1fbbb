// global (Kim et al. 2025, arXiv 2505.23416): one pool of all layers and heads. Every head keeps its best token; the
// rest of the uniform number k a head goes to the best remaining tokens of the whole model, the newer on ties. It asks
// for scores that mean the same in every layer, as kvzip's shares of attention do.
#include "scoring/budgets/budgets.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

class Global final : public Budget {
 public:
  std::string_view name() const override { return "global"; }
  bool nested() const override { return true; }

 private:
  Kept select_impl(const ModelScores& scores, double keep, std::uint32_t) const override {
    Kept kept(scores.scores.size());
    const std::size_t n = scores.tokens, heads = kept.size() / n;
    for (std::size_t first = 0; first < kept.size(); first += n) {
      keep_best(scores.scores.subspan(first, n), 1, std::span(kept).subspan(first, n));
    }
    keep_best_of_heads(scores.scores, n, (kept_tokens(scores.tokens, keep) - 1) * heads, kept);
    return kept;
  }
};

}  // namespace

std::unique_ptr<Budget> make_global() { return std::make_unique<Global>(); }

}  // namespace shale
