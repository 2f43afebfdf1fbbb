// The reverse of relief: upgrades and moves up, top tier first, by largest gain per byte.
//
// A step takes an entry to a configuration on tier S that is worth more than its present one. Where it does not fit, S
// and then the tiers below are relieved of their least offers. The step stands if its gain exceeds all that was given
// up by the share `hysteresis`, which a step into free room always does, and is taken back otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "placement/relief.h"

namespace shale {

class Promotion {
 public:
  Promotion(Board& board, const PlannerOptions& options)
      : board_(board), relief_(board, options.divide_by_bytes), hysteresis_(options.hysteresis) {}

  // Requires that no tier is over its capacity, and leaves it so.
  void run();

 private:
  struct Step {
    double gain_per_byte = 0;  // infinite when it takes no bytes of S
    double gain = 0;
    std::size_t entry = 0;
    std::uint32_t to = 0;
    std::uint32_t version = 0;
    std::uint64_t bytes_below = 0;  // only configurations smaller than this are tried for the entry: larger ones failed
  };

  static bool later(const Step& a, const Step& b);
  std::optional<Step> best_step(std::size_t e, std::uint32_t tier, std::uint64_t bytes_below) const;
  void fill(std::uint32_t tier);
  bool take(const Step& step);

  Board& board_;
  Relief relief_;
  double hysteresis_;
};

}  // namespace shale
