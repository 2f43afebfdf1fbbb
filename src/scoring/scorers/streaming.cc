// streaming: the first `sinks` tokens rank first, oldest first; then newest to oldest: the middle goes, oldest first
// (Xiao et al. 2023, arXiv 2309.17453).
#include <algorithm>

#include "scoring/registry.h"

namespace shale {
namespace {

class Streaming final : public Scorer {
 public:
  explicit Streaming(std::uint32_t sinks) : sinks_(sinks) {}
  std::string_view name() const override { return "streaming"; }
  ScorerNeeds needs() const override { return {}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { fill(layer.tokens, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { fill(layer.tokens, scores); }

  // Beyond 2^24 tokens neighbours tie, and ties keep the newer, as they should.
  void fill(std::uint32_t tokens, std::span<float> scores) const {
    const std::uint32_t sinks = std::min(sinks_, tokens);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::uint32_t token = static_cast<std::uint32_t>(i % tokens);
      scores[i] =
          token < sinks ? 2.0f * static_cast<float>(tokens) - static_cast<float>(token) : static_cast<float>(token);
    }
  }

  std::uint32_t sinks_;
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_streaming(const ScorerOptions& options) {
  return std::make_unique<Streaming>(options.sinks);
}

}  // namespace shale
