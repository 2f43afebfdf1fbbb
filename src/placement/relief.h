// Makes room, top tier first, at the least marginal drop of utility.
//
// Every entry on tier S that is not pinned has one standing offer: the next vertex of the upper convex hull of (bytes
// on S, utility) over its smaller configurations on S and the point (0 bytes, its best utility below S), so that
// pressing and moving are comparable. The least offer is taken until S fits; what moved down may then overfill the next
// tier.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "placement/board.h"
#include "placement/hull.h"

namespace shale {

class Relief {
 public:
  static constexpr double kAnyDrop = std::numeric_limits<double>::infinity();
  static constexpr std::size_t kNobody = ~std::size_t{0};

  Relief(Board& board, bool divide_by_bytes)
      : board_(board), divide_(divide_by_bytes), tiers_(board.problem().tiers.size()) {}

  // Takes offers until no tier is over its capacity; `still` keeps its place. Gives up, leaving what it did so far, as
  // soon as the utility given up would reach `drop_limit`. True when every tier fits and less than that was lost.
  bool run(double drop_limit = kAnyDrop, std::size_t still = kNobody);

  // Changes to the board go through these, so that offers follow.
  void move(std::size_t e, std::uint32_t to);
  void undo(std::size_t moves);

 private:
  struct Offer {
    double rank = 0;  // drop per byte, or the drop alone
    double drop = 0;
    std::size_t entry = 0;
    std::uint32_t to = 0;
    std::uint32_t version = 0;
  };
  struct TierOffers {
    bool made = false;  // made when the tier is first over its capacity
    std::vector<Offer> heap;
  };

  static bool later(const Offer& a, const Offer& b);
  bool relieve_tier(std::uint32_t tier, double drop_limit, std::size_t still, double& dropped);
  std::optional<Offer> take_least(std::uint32_t tier, std::size_t still);
  std::optional<Offer> make_offer(std::size_t e);
  void offer(std::size_t e);

  Board& board_;
  bool divide_;
  std::vector<TierOffers> tiers_;
  std::vector<Point> points_;  // scratch
};

}  // namespace shale
