// `hazard` for those who study it: with a model that sees less, that was learnt before, or that is to be read.
#pragma once

#include <cstdint>
#include <memory>

#include "eviction/hazard_model.h"
#include "paging/eviction_policy.h"

namespace shale {

enum class HazardLearning {
  kOnline,   // samples, and fits the model now and then: the policy
  kSamples,  // only samples: the caller fits the model when the trace is done
  kNothing,  // uses the model as it is
};

struct HazardOptions {
  std::uint64_t ghosts_max = 0;  // evicted blocks that it keeps a record of
  std::uint64_t seed = 0;        // of which blocks become samples
  HazardLearning learning = HazardLearning::kOnline;
};

// How many ghosts the policy keeps beside so many resident blocks.
std::uint64_t hazard_ghosts(std::uint64_t capacity_blocks);

// The model is the policy's alone while the policy is in use.
std::unique_ptr<EvictionPolicy> make_hazard(std::shared_ptr<HazardModel> model, const HazardOptions& options);

}  // namespace shale
