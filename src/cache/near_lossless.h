// How far coding in fewer bits moves attention's output over a run, measured on the run itself: before anything is
// known of answers, what hardly moves it may be used.
#pragma once

#include <cstdint>
#include <optional>

#include "codec/quantizer.h"
#include "paging/sequence.h"
#include "scoring/observations.h"

namespace shale {

// The square root of the distortion (codec/distortion.h: squared output error over the squared spread of values,
// bounded from above) when all tokens are coded, of the worst of one head a layer, by the run's last queries over its
// newest tokens, 256 at most: about a millisecond for a small model. Tokens [first, first + tokens) of `sequence`,
// whose heads agree there, in a pool of halves. Nothing where the observations, which are of these tokens, have no
// queries, or the quantizer cannot code the head dimension.
std::optional<double> coding_error(const Sequence& sequence, std::uint32_t first, std::uint32_t tokens,
                                   const Observations& observations, const Quantizer& quantizer);

}  // namespace shale
