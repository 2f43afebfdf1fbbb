// random: a seeded permutation per (layer, KV head); the floor that every method must beat.
#include <numeric>
#include <utility>
#include <vector>

#include "scoring/registry.h"

namespace shale {
namespace {

// SplitMix64 (Steele et al. 2014): the same numbers on every platform, which std::shuffle does not promise.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Random final : public Scorer {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "random"; }
  ScorerNeeds needs() const override { return {}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { fill(layer, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { fill(layer, scores); }

  template <class Element>
  void fill(const LayerKv<Element>& layer, std::span<float> scores) const {
    std::vector<std::uint32_t> order(layer.tokens);
    for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
      std::iota(order.begin(), order.end(), 0u);
      std::uint64_t state = seed_;
      state = next(state) ^ (std::uint64_t{layer.layer} << 32 | (layer.first_head + head));
      for (std::uint32_t i = layer.tokens; i > 1; --i) std::swap(order[i - 1], order[next(state) % i]);
      for (std::uint32_t i = 0; i < layer.tokens; ++i) {
        scores[std::size_t{head} * layer.tokens + i] = static_cast<float>(order[i]);
      }
    }
  }

  std::uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_random(const ScorerOptions& options) {
  return std::make_unique<Random>(options.seed);
}

}  // namespace shale
