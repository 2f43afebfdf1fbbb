// How likely blocks return, learnt while serving.
//
// A block at a visit is known by a handful of properties, small numbers each. Its hazard h(a), the expected number of
// returns per tick at age a (ticks since the visit), is modelled as a product:
//
//   h(a) = the hazard of all blocks at a × a factor for each property's value, which may change with the band of ages
//
// which is Cox's proportional hazards (1972) with piecewise constant rates. It is estimated from samples: visits whose
// block returned after so many ticks, visits given up unreturned at some age, and visits still waiting (the actuarial
// estimator of survival analysis, which is unbiased by what is given up). A factor is (O + s) / (E + s), of O returns
// seen where the rest of the model expects E, with s = 2: a value seen little changes nothing, no property needs a
// weight, and a trace in which one means nothing learns so. The factors are found one property after the other
// (backfitting), and each fit goes on from the one before.
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
#include <optional>
#include <string_view>
#include <vector>

namespace shale {

class HazardModel {
 public:
  // A combination of the properties' values that occurred.
  using Cell = std::uint16_t;

  // What is known at a visit.
  struct Visit {
    bool partial = false;             // the block is not full: only the same prompt again finds it
    std::uint32_t visits = 0;         // to the block before this one
    std::uint32_t turn = 0;           // how often the path was continued where it ended
    std::uint32_t fresh_blocks = 0;   // of the request: those that are neither cached nor ghosts
    std::uint32_t answer_tokens = 0;  // 0 where they are not known
    std::uint32_t gap = 0;            // ticks since what is known of the path was visited; 0 where nothing is
    bool operator==(const Visit&) const = default;
  };
  // A visit that waits for its block's return.
  using Sample = std::uint32_t;
  static constexpr Sample kNoSample = ~Sample{0};

  static constexpr auto kProperties = std::to_array<std::string_view>(
      {"partial", "visits", "turn", "visits and turn", "fresh blocks", "answer tokens", "gap"});

  // `without` are bits of kProperties: what it shall not see.
  explicit HazardModel(std::uint32_t without = 0);

  // Once there are many cells, combinations that are new share one.
  Cell cell(const Visit& visit);
  Sample begin(Cell cell, std::uint32_t tick);
  // The block returned, or is given up; the sample's number may come again. Does nothing for kNoSample.
  void end(Sample sample, std::uint32_t tick, bool returned);
  // Estimates all anew, from what ended and what waits. What ended so far then counts `kept` times as much as before
  // (0 to 1). O(cells + samples that wait).
  void fit(std::uint32_t tick, float kept);

  // Returns per tick, more than 0.
  float density(Cell cell, std::uint32_t age) {
    if (cells_[cell].densities == kNone) find_densities(cells_[cell]);
    return densities_[cells_[cell].densities][age_class(age)];
  }
  float hazard(Cell cell, std::uint32_t age) const {
    return hazard_[age_class(age)] * product(cells_[cell].values)[age_class(age) / kAgesPerBand];
  }

  // 0, 1, 2, 3, 4-5, 6-7, 8-11, 12-15, 16-23 …; the last is open.
  static constexpr std::uint32_t kAgeClasses = 40;
  static constexpr std::uint32_t age_class(std::uint32_t age) {
    if (age < 2) return age;
    const auto octave = static_cast<std::uint32_t>(std::bit_width(age)) - 1;
    return std::min(2 * octave + ((age >> (octave - 1)) & 1), kAgeClasses - 1);
  }
  static constexpr std::uint32_t youngest(std::uint32_t age_class) {
    return age_class < 2 ? age_class : (2 + (age_class & 1)) << (age_class / 2 - 1);
  }

 private:
  static constexpr std::uint32_t kValues = 16;  // of a property; the last: of cells that share one
  static constexpr std::uint32_t kAgesPerBand = 4, kBands = kAgeClasses / kAgesPerBand;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0}, kNoEnded = (1 << 25) - 1;
  using Values = std::uint32_t;  // of all properties, 4 bits each
  using Ages = std::array<float, kAgeClasses>;
  using Bands = std::array<float, kBands>;
  struct CellState {
    Values values;
    std::uint32_t ended = kNoEnded;   // the first of its list
    std::uint32_t densities = kNone;  // its own among them, once asked for since the last fit
  };
  // How many samples of a cell returned, or were lost, at one age; older ones count less. Most cells saw few ages.
  struct Ended {
    float count;
    std::uint32_t next : 25;  // of the cell
    std::uint32_t age : 6;    // its class
    std::uint32_t returned : 1;
  };
  struct Waiting {
    std::uint32_t tick;  // of one that ended: the next that did
    Cell cell;
    bool ended;
  };
  struct Factor {
    float always = 1;
    Bands in_band;  // `always` included
  };
  // The returns of a cell in which samples were.
  struct Returns {
    Values values;
    Bands seen{}, expected{};
  };

  static std::uint32_t value(Values values, std::size_t property) { return values >> 4 * property & 15; }
  Values values_of(const Visit& visit) const;
  Cell add_cell(Values values);
  // The product of the factors of all properties.
  Bands product(Values values) const;
  // The ages of samples that wait, which end now: of each cell from `from[cell]` to `from[cell + 1]`.
  struct WaitingAges {
    std::vector<std::uint32_t> from;
    std::vector<std::uint8_t> ages;
  };
  WaitingAges waiting_ages(std::uint32_t tick);
  // Returns seen and, as the model is, expected. Fits the hazard of all blocks on the way.
  std::vector<Returns> returns(std::uint32_t tick);
  void fit_property(std::size_t property, std::vector<Returns>& cells);
  void find_densities(CellState& cell);

  std::uint32_t without_;
  std::uint32_t ages_ = 1;  // classes of age in which samples were
  Ages hazard_;             // of all blocks
  std::array<std::array<Factor, kValues>, kProperties.size()> factors_;
  std::vector<CellState> cells_;     // by Cell
  std::vector<Cell> named_;          // by a hash of the values, or in the next free place; 0: free
  std::optional<Visit> last_visit_;  // that was asked for, and its cell
  Cell last_cell_ = 0;
  std::vector<Ended> ended_;
  std::vector<Ages> densities_;
  std::vector<Waiting> waiting_;  // by Sample
  Sample unused_ = kNoSample;     // the first of those that ended
};

}  // namespace shale
