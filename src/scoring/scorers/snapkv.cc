// snapkv (Li et al. 2024, arXiv 2404.14469): the softmax attention of the last `window` queries over all keys, causal
// inside the window; without the window's own columns; mean over the window's queries and the KV head's query heads;
// average pooling along tokens of width `kernel`, zero-padded, the divisor always `kernel`. The window's own tokens get
// the layer's maximum over KV heads + 1. With no more tokens than the window, all tie.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/snapkv.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/registry.h"
#include "scoring/scorers/window.h"

HWY_BEFORE_NAMESPACE();
namespace shale::snapkv::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

template <class Element>
void score_layer(const LayerKv<Element>& layer, std::uint32_t window, std::uint32_t kernel, std::span<float> scores) {
  const std::uint32_t queries = std::min(window, layer.tokens), past = layer.tokens - queries;
  std::vector<float> mass(layer.tokens);
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    const std::span head_scores = scores.subspan(std::size_t{head} * layer.tokens, layer.tokens);
    std::ranges::fill(mass, 0.0f);
    add_attention(layer, head, queries, mass);
    for (float& each : mass) each /= static_cast<float>(queries);
    std::ranges::copy(mass, head_scores.begin());
    pool_average(std::span(mass).first(past), kernel, head_scores.first(past));
  }
  put_first(scores, layer.tokens, past, layer.tokens);
}

void score_half(const LayerKv<Half>& layer, std::uint32_t window, std::uint32_t kernel, std::span<float> scores) {
  score_layer(layer, window, kernel, scores);
}
void score_float(const LayerKv<float>& layer, std::uint32_t window, std::uint32_t kernel, std::span<float> scores) {
  score_layer(layer, window, kernel, scores);
}

}  // namespace shale::snapkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
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
    HWY_DYNAMIC_DISPATCH(score_half)(layer, window_, kernel_, scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, window_, kernel_, scores);
  }

  std::uint32_t window_, kernel_;
};

}  // namespace snapkv

Result<std::unique_ptr<Scorer>> make_snapkv(const ScorerOptions& options) {
  SHALE_TRY(check_window("snapkv", options));
  return std::make_unique<snapkv::SnapKv>(options.window, options.kernel);
}

}  // namespace shale
#endif
