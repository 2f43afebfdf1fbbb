// How far coding in fewer bits moves attention's output over a run, measured on the run itself: before anything is
// known of answers, what hardly moves it may be used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "paging/sequence.h"
#include "quantizers/quantizer.h"
#include "scoring/attention_statistics.h"

namespace shale {

// The error of attention's output when all tokens are coded, relative: the square root of its square over the squared
// spread of values (quantizers/distortion.h, measured), mean over one head a layer, by the run's last queries over its
// newest tokens, 256 at most. Several quantizers at once, a layer at a time: about a millisecond for each of them.
class CodingErrors {
 public:
  // Begins with tokens [first, first + tokens), whole blocks whose heads agree, of a sequence in a pool of halves.
  // Nothing where the attention statistics, which are of these tokens, have no queries. The queries used are copied.
  // `attention_scale`: as in ModelTraits.
  static std::optional<CodingErrors> start(const PageShape& shape, std::uint32_t first, std::uint32_t tokens,
                                           const AttentionStatistics& statistics, float attention_scale,
                                           std::vector<std::unique_ptr<Quantizer>> quantizers);

  // Measures the next layer of the sequence. False when that was the last one.
  bool step(const Sequence& sequence);
  // The error of quantizer number i, once all layers are measured; infinite where it cannot code the head dimension.
  double error(std::size_t i) const;

 private:
  struct Measured {
    std::unique_ptr<Quantizer> quantizer;
    double squared = 0;  // over the layers so far
  };
  CodingErrors(std::uint32_t first, std::uint32_t tokens, float attention_scale)
      : first_(first), tokens_(tokens), attention_scale_(attention_scale) {}

  std::uint32_t first_, tokens_;
  float attention_scale_;
  std::vector<std::vector<float>> queries_;  // by layer, of all query heads that share its KV head
  std::vector<Measured> measured_;
  std::uint32_t layer_ = 0;
};

}  // namespace shale
