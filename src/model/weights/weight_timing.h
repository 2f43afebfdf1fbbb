// How long one layer's matrices take, in each candidate type and number of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/compute_threads.h"
#include "model/weights/weights.h"

namespace shale {

// Numbers of tokens that are timed; between two of them the smaller one's winner runs.
inline constexpr std::array<std::uint32_t, 7> kTimedTokens = {1, 2, 4, 8, 16, 32, 128};

struct WeightTiming {
  RunType type;
  std::array<double, kTimedTokens.size()> seconds;  // per layer
};

// The types worth timing that this processor can run, in the order of preference; the file's own first.
std::vector<RunType> candidate_types(const FileTensors& file);

// Times all candidates on one thread, interleaved, by the time that thread really ran, and
// keeps each one's best of several runs. So a choice holds on a busy machine too, where threads that wait for each
// other would measure their neighbours.
Result<std::vector<WeightTiming>> time_weights(const FileTensors& file, ComputeThreads& threads);

}  // namespace shale
