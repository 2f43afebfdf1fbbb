// uniform: every head of every layer keeps its best kept_tokens(tokens, keep).
#include "scoring/budgets/budgets.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

class Uniform final : public Budget {
 public:
  std::string_view name() const override { return "uniform"; }
  bool nested() const override { return true; }

 private:
  Kept select_impl(const ModelScores& scores, double keep, std::uint32_t) const override {
    Kept kept(scores.scores.size());
    const std::uint32_t count = kept_tokens(scores.tokens, keep);
    for (std::size_t first = 0; first < kept.size(); first += scores.tokens) {
      keep_best(scores.scores.subspan(first, scores.tokens), count, std::span(kept).subspan(first, scores.tokens));
    }
    return kept;
  }
};

}  // namespace

std::unique_ptr<Budget> make_uniform() { return std::make_unique<Uniform>(); }

}  // namespace shale
