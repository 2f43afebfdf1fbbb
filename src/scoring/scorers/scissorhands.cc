// scissorhands (Liu et al. 2023, arXiv 2305.17118): how many times a token receives more than the average attention,
// 1 / (tokens that the query sees), over the last kHistory queries, summed over the KV head's query heads. The newest
// tokens are seen by few of those queries; ties keep the newer.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/scissorhands.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <algorithm>
#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::scissorhands::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

template <class Element>
void score_head(const LayerKv<Element>& layer, std::uint32_t head, std::uint32_t history, std::span<float> scores) {
  const Wide d;
  HeadKeys keys(layer, head);
  const auto counts = hwy::AllocateAligned<float>(keys.padded());
  std::fill_n(counts.get(), keys.padded(), 0.0f);
  for_each_block(layer, head, std::min(history, layer.tokens), keys, [&](const AttentionBlock& block) HWY_ATTR {
    const auto one = hn::Set(d, 1.0f);
    for (std::size_t i = 0; i < block.seen; i += hn::Lanes(d)) {
      auto count = hn::Load(d, &counts[i]);
      for (std::uint32_t q = 0; q < block.queries; ++q) {
        const float times_average = block.inverse[q] * static_cast<float>(block.first + q + 1);
        const auto above = hn::Gt(hn::Mul(hn::Load(d, block.rows[q] + i), hn::Set(d, times_average)), one);
        count = hn::Add(count, hn::IfThenElseZero(above, one));
      }
      hn::Store(count, d, &counts[i]);
    }
  });
  for (std::uint32_t i = 0; i < layer.tokens; ++i) scores[i] = keys.usable(i) ? counts[i] : kNan;
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, std::uint32_t history, std::span<float> scores) {
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    score_head(layer, head, history, scores.subspan(std::size_t{head} * layer.tokens, layer.tokens));
  }
}

void score_half(const LayerKv<Half>& layer, std::uint32_t history, std::span<float> scores) {
  score_layer(layer, history, scores);
}
void score_float(const LayerKv<float>& layer, std::uint32_t history, std::span<float> scores) {
  score_layer(layer, history, scores);
}

}  // namespace shale::scissorhands::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace scissorhands {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

constexpr std::uint32_t kHistory = 400;

class Scissorhands final : public Scorer {
 public:
  std::string_view name() const override { return "scissorhands"; }
  ScorerNeeds needs() const override { return {.keys = true, .last_queries = kHistory}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, kHistory, scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, kHistory, scores);
  }
};

}  // namespace scissorhands

Result<std::unique_ptr<Scorer>> make_scissorhands(const ScorerOptions&) {
  return std::make_unique<scissorhands::Scissorhands>();
}

}  // namespace shale
#endif
