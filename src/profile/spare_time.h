// Measuring while requests are running, at the share that the engine leaves to its guests (engine/engine.h).
//
// Measuring is written as if it had the model for itself; where it comes to a step, or has worked for a while, requests
// go on within that call until it is its turn again. So one thread does both, and nothing is computed twice at once.
#pragma once

#include <functional>

#include "core/clock.h"
#include "engine/engine.h"
#include "profile/feed.h"

namespace shale {

class SpareTime final : public Pace {
 public:
  // `others` is a turn of the engine, run_once() and whatever its owner does around it; false when measuring is to end.
  // All must outlive it. One at a time for an engine; made anew for each piece of work.
  SpareTime(Engine& engine, const Clock& clock, std::function<bool()> others);
  ~SpareTime() override;  // what was measured since the last turn is charged

  bool wait_for_turn(std::uint32_t depth) override;
  std::uint32_t tokens() const override { return tokens_; }
  Result<std::span<const float>> step(std::span<const StepSequence> batch) override;
  double seconds_of_others() const override { return others_s_; }

 private:
  bool alone() const;
  bool let_others();
  bool stores_first(double waited_since_s);

  Engine& engine_;
  const Clock& clock_;
  std::function<bool()> others_;
  double since_s_;       // measuring has had the thread
  double others_s_ = 0;  // of a real clock
  bool ended_ = false;
  std::uint32_t tokens_ = 1;
  GuestStep guest_;
};

}  // namespace shale
