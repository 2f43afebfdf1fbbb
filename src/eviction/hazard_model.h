// How likely blocks return, learnt while serving.
//
// Blocks visited in one way, by what is known of them at the visit, share a cell. A cell's hazard h(a) is the expected
// number of returns of a block per tick at age a (ticks since its last visit), by classes of age two to the octave. It
// is estimated from samples: visits whose block returned after so many ticks, visits given up unreturned at some age,
// and visits still waiting (the actuarial estimator of survival analysis, which is unbiased by what is given up).
//
// Cells are refinements of coarser cells, one property at a time (partial last block, visits, turn, fresh blocks), and
// where a cell has seen little it is as its parent: the parent's hazard is scaled by (O + s) / (E + s), of O returns
// seen against E expected, and each class of age then counts s returns at that rate as already seen (gamma prior,
// s = 2). No property needs a weight, and a trace in which one means nothing learns so.
//
// A block is worth keeping by its density: the largest ratio, over all ages at which one could give it up, of the
// chance that it has returned by then to the expected time that it takes room until then. It is the index of Gittins
// (1979) of a block that pays once, and what LHD (Beckmann, Chen, Cidon, NSDI 2018) estimates for the age at which its
// cache happens to evict.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace shale {

class HazardModel {
 public:
  using Cell = std::uint16_t;

  // What is known at a visit.
  struct Visit {
    bool partial = false;            // the block is not full: only the same prompt again finds it
    std::uint32_t visits = 0;        // to the block before this one
    std::uint32_t turn = 0;          // how often the path was continued where it ended
    std::uint32_t fresh_blocks = 0;  // of the request: those that nobody remembers
  };
  // A visit that waits for its block's return.
  using Sample = std::uint32_t;
  static constexpr Sample kNoSample = ~Sample{0};

  HazardModel();

  // A cell seen for the first time is as its parent until the next `fit`.
  Cell cell(const Visit& visit);
  Sample begin(Cell cell, std::uint32_t tick);
  // The block returned, or is given up; the sample's number may come again. Does nothing for kNoSample.
  void end(Sample sample, std::uint32_t tick, bool returned);
  // Estimates all anew, from what ended and what waits. What ended so far then counts `kept` times as much as before
  // (0 to 1). O(cells + samples that wait).
  void fit(std::uint32_t tick, float kept);

  // Returns per tick, more than 0.
  float density(Cell cell, std::uint32_t age) const { return densities_[cell][age_class(age)]; }
  float hazard(Cell cell, std::uint32_t age) const { return hazards_[cell][age_class(age)]; }

  // 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15, 16-23 …; the last is open.
  static constexpr std::uint32_t kAgeClasses = 44;
  static constexpr std::uint32_t age_class(std::uint32_t age) {
    if (age < 2) return age;
    const auto octave = static_cast<std::uint32_t>(std::bit_width(age)) - 1;
    return std::min(2 * octave + ((age >> (octave - 1)) & 1), kAgeClasses - 1);
  }
  static constexpr std::uint32_t youngest(std::uint32_t age_class) {
    return age_class < 2 ? age_class : (2 + (age_class & 1)) << (age_class / 2 - 1);
  }

 private:
  using Ages = std::array<float, kAgeClasses>;
  struct Counts {
    Ages returned{}, lost{};
  };
  struct Waiting {
    std::uint32_t tick;
    Cell cell;  // 0: no sample, the number is unused
  };

  Cell add_cell(Cell parent);
  void fit_cell(Cell cell, const Counts& counts);
  void find_densities(const Ages& hazard, Ages& density) const;

  std::uint32_t ages_ = 1;      // classes of age in which samples were
  std::vector<Cell> parents_;   // by Cell; a parent comes before its children; cell 0 is its own
  std::vector<Counts> counts_;  // only of cells that visits are in
  std::vector<Ages> hazards_, densities_;
  std::vector<Cell> named_;       // by the properties so far, after a leading 1; 0 where there is none yet
  std::vector<Counts> totals_;    // of a cell and all below it, while fitting
  std::vector<Waiting> waiting_;  // by Sample
  std::vector<Sample> unused_;
};

}  // namespace shale
