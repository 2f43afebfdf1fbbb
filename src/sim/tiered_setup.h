// What a simulation of tiers is made of, from its options. Private to the room.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "placement/placement.h"
#include "sim/tiered_cache.h"

namespace shale {

// What the options name, checked and made.
struct TieredSetup {
  std::vector<std::string> methods = {"full"};  // by Candidate::method
  std::unique_ptr<Planner> planner;

  static Result<TieredSetup> make(const TieredOptions& options);
};

}  // namespace shale
