// kvzip (Kim et al. 2025, arXiv 2505.23416): the largest attention that a token receives while the model repeats the
// context in chunks of 2,048 tokens, each after a request to repeat it. What no repetition looks at can be rebuilt
// without it. The repetition is the engine's; its largest attention is the score. The first `sinks` tokens rank first,
// as in the authors' code and kvpress's: heads that never look at them while copying lean on them while answering.
#include <algorithm>

#include "scoring/registry.h"
#include "scoring/scorers/window.h"

namespace shale {
namespace {

class KvZip final : public Scorer {
 public:
  explicit KvZip(std::uint32_t sinks) : sinks_(sinks) {}
  std::string_view name() const override { return "kvzip"; }
  ScorerNeeds needs() const override { return {.repeat_attention = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { score_layer(layer, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { score_layer(layer, scores); }

  template <class Element>
  void score_layer(const LayerKv<Element>& layer, std::span<float> scores) const {
    std::ranges::copy(layer.repeat_attention, scores.begin());
    put_first(scores, layer.tokens, 0, std::min(sinks_, layer.tokens));
  }

  std::uint32_t sinks_;
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_kvzip(const ScorerOptions& options) {
  return std::make_unique<KvZip>(options.sinks);
}

}  // namespace shale
