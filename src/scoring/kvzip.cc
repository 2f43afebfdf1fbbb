// kvzip (Kim et al. 2025, arXiv 2505.23416): the largest attention that a token receives while the model repeats the
// context in chunks of 2,048 tokens, each after a request to repeat it. What no repetition looks at can be rebuilt
// without it. The repetition is the engine's; its largest attention is the score.
#include <algorithm>

#include "scoring/registry.h"

namespace shale {
namespace {

class KvZip final : public Scorer {
 public:
  std::string_view name() const override { return "kvzip"; }
  ScorerNeeds needs() const override { return {.repeat_attention = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    std::ranges::copy(layer.repeat_attention, scores.begin());
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    std::ranges::copy(layer.repeat_attention, scores.begin());
  }
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_kvzip(const ScorerOptions&) { return std::make_unique<KvZip>(); }

}  // namespace shale
