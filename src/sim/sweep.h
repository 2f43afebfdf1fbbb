// Many runs at once: the simulator uses no engine's threads, so a sweep may have its own.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "sim/simulate.h"

namespace shale {

struct SweepRun {
  const Trace* trace = nullptr;
  SimulationOptions options;
};

struct SweepEvents {
  // Called for each run as soon as it and all before it are done, in their order. An error ends the sweep.
  std::function<Status(std::size_t run, const SimulationResult& result)> on_result;
  // Called several times a second. False stops the sweep: runs running end where they are, and are told with what
  // they have; those that have not begun are never told.
  std::function<bool(std::size_t runs_done)> keep_going;
};

// Both events are called on the calling thread. Returns the first error of a run or an event.
Status sweep(std::span<const SweepRun> runs, std::size_t threads, const SweepEvents& events);

}  // namespace shale
