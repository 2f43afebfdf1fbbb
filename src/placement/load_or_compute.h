// How much of a stored prefix a request loads, and what it computes: the cache and the simulator decide alike.
#pragma once

#include <cstddef>
#include <span>

namespace shale {

// What the engine has to do before and beside a request.
struct ComputeBacklog {
  double compute_s = 0;  // until it could begin to compute the prompt
  double slowdown = 1;   // so many times as long as alone computing takes beside those who decode; compute_s has it
  bool others = false;   // requests are running or waiting, and a step that computes is longer for them
};

// A prefix that is loaded as far as here.
struct LoadedUpTo {
  double ready_s = 0;  // until it is there
  double lost_s = 0;   // later that an answer might be for what its worst form loses
  double rest_s = 0;   // of computing, alone, what is stored behind it; 0: that is all
};

// How many of these, each of which goes on where the one before ends: that after which all that is stored is there
// soonest, the rest of it computed; 0 where computing all of it, which takes `all_s` alone, is no later.
std::size_t loads_that_pay(std::span<const LoadedUpTo> loads, double all_s, const ComputeBacklog& backlog);

}  // namespace shale
