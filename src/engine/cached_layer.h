// One layer of a sequence that dropped tokens, as scorers read it: each head's resident tokens in the order of their
// positions, gathered where they do not lie that way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/live_capture.h"
#include "model/model.h"
#include "paging/sequence.h"
#include "scoring/calibration.h"
#include "scoring/scorer.h"

namespace shale {

class CachedLayer {
 public:
  // `sequence` is ragged, and every head holds a token. `capture` may be null, and so may `calibration`.
  CachedLayer(Sequence& sequence, std::uint32_t layer, const ModelInfo& model, const LiveCapture* capture,
              const Calibration* calibration);

  // Slots of one head's resident tokens, by position.
  std::span<const std::uint32_t> slots(std::uint32_t head) const { return slots_[head]; }
  // Writes each head's scores to the first of its `stride` places. Heads that hold different numbers of tokens are
  // scored one by one: what a scorer shares between heads (tova's mean) then is its KV head's own.
  void score(const Scorer& scorer, std::span<float> scores, std::size_t stride) const;

 private:
  void lay_out(std::uint32_t head, std::vector<LayerKv<Half>::Page>& pages, std::vector<Half>& memory) const;

  Sequence& sequence_;
  std::uint32_t layer_;
  const ModelInfo& model_;
  const LiveCapture* capture_;
  const Calibration* calibration_;
  std::vector<std::vector<std::uint32_t>> slots_;
};

}  // namespace shale
