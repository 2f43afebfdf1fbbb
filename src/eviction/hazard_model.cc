#include "eviction/hazard_model.h"

#include <utility>

#include "paging/reserve_tightly.h"

namespace shale {
namespace {

constexpr float kPriorReturns = 2;
// Of one block that lived through all ages before anything was seen: the older, the less likely to return, as LRU.
constexpr float kUnseenReturns = 1e-3f;
constexpr std::size_t kCellsMax = 8192;

// 0, 1, 2-3, 4-7 …, no more than `last`.
std::uint8_t octave(std::uint32_t count, int last) {
  return static_cast<std::uint8_t>(std::min(static_cast<int>(std::bit_width(count)), last));
}

// Of each class of age, in ticks.
constexpr auto kWidths = [] {
  std::array<float, HazardModel::kAgeClasses> widths;
  for (std::uint32_t age = 0; age < widths.size(); ++age) {
    widths[age] = static_cast<float>(HazardModel::youngest(age + 1) - HazardModel::youngest(age));
  }
  return widths;
}();

}  // namespace

HazardModel::HazardModel(std::uint32_t without) : without_(without) {
  for (std::uint32_t age = 0; age < kAgeClasses; ++age) {
    hazard_[age] = kUnseenReturns / (static_cast<float>(youngest(age)) + 1);
  }
  for (auto& property : factors_) {
    for (Factor& factor : property) factor.in_band.fill(1);
  }
  Values shared;
  shared.fill(kValues - 1);
  add_cell(shared);
}

HazardModel::Values HazardModel::values_of(const Visit& visit) const {
  Values values = {visit.partial,
                   octave(visit.visits, 6),
                   octave(visit.turn, 6),
                   static_cast<std::uint8_t>(4 * octave(visit.visits, 3) + octave(visit.turn, 3)),
                   octave(visit.fresh_blocks, 11),
                   octave(visit.answer_tokens, 12),
                   octave(visit.gap, 14)};
  for (std::size_t property = 0; property < values.size(); ++property) {
    if (without_ >> property & 1) values[property] = 0;
  }
  return values;
}

HazardModel::Cell HazardModel::add_cell(const Values& values) {
  reserve_tightly(cells_, cells_.size() + 1);
  cells_.push_back({.values = values});
  return static_cast<Cell>(cells_.size() - 1);
}

HazardModel::Cell HazardModel::cell(const Visit& visit) {
  const Values values = values_of(visit);
  std::uint32_t name = 0;
  for (const std::uint8_t value : values) name = name << 4 | value;
  if (name == last_name_) return last_cell_;
  last_name_ = name;
  const auto known = named_.find(name);
  if (known != named_.end()) return last_cell_ = known->second;
  if (cells_.size() == kCellsMax) return last_cell_ = 0;
  return last_cell_ = named_[name] = add_cell(values);
}

HazardModel::Sample HazardModel::begin(Cell cell, std::uint32_t tick) {
  if (unused_.empty()) {
    reserve_tightly(waiting_, waiting_.size() + 1);
    waiting_.push_back({tick, cell, false});
    return static_cast<Sample>(waiting_.size() - 1);
  }
  const Sample sample = unused_.back();
  unused_.pop_back();
  waiting_[sample] = {tick, cell, false};
  return sample;
}

void HazardModel::end(Sample sample, std::uint32_t tick, bool returned) {
  if (sample == kNoSample) return;
  Waiting& waiting = waiting_[sample];
  CellState& cell = cells_[waiting.cell];
  const std::uint32_t age = age_class(tick - waiting.tick);
  (returned ? cell.returned : cell.lost)[age] += 1;
  ages_ = std::max(ages_, age + 1);
  waiting.ended = true;
  unused_.push_back(sample);
}

HazardModel::Bands HazardModel::product(const Values& values) const {
  Bands product;
  product.fill(1);
  for (std::size_t property = 0; property < kProperties.size(); ++property) {
    const Bands& factor = factors_[property][values[property]].in_band;
    for (std::uint32_t band = 0; band < kBands; ++band) product[band] *= factor[band];
  }
  return product;
}

void HazardModel::fit(std::uint32_t tick, float kept) {
  std::vector<Returns> cells = returns(tick);
  for (std::size_t property = 0; property < kProperties.size(); ++property) fit_property(property, cells);
  for (CellState& cell : cells_) {
    for (float& count : cell.returned) count *= kept;
    for (float& count : cell.lost) count *= kept;
  }
  ++fits_;
}

std::vector<HazardModel::Returns> HazardModel::returns(std::uint32_t tick) {
  // By cell, the time that samples spent in each class of age: all of it where they ended later, half where they ended
  // in it. Those that wait end now.
  std::vector<Ages> exposures(cells_.size(), Ages{});
  for (const Waiting& waiting : waiting_) {
    if (waiting.ended) continue;
    const std::uint32_t age = age_class(tick - waiting.tick);
    exposures[waiting.cell][age] += 1;
    ages_ = std::max(ages_, age + 1);
  }
  Ages returned{}, exposed{};
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    float later = 0;
    for (std::uint32_t age = ages_; age-- > 0;) {
      float& exposure = exposures[cell][age];
      const float ended = exposure + cells_[cell].returned[age] + cells_[cell].lost[age];
      exposure = (later + ended / 2) * kWidths[age];
      later += ended;
      returned[age] += cells_[cell].returned[age];
      exposed[age] += exposure;
    }
  }
  for (std::uint32_t age = 0; age < ages_; ++age) {
    hazard_[age] = (returned[age] + kUnseenReturns) / (exposed[age] + static_cast<float>(youngest(age)) + 1);
  }
  std::vector<Returns> returns(cells_.size());
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    const Bands factor = product(cells_[cell].values);
    for (std::uint32_t band = 0; band < kBands; ++band) {
      float seen = 0, expected = 0;
      for (std::uint32_t age = band * kAgesPerBand; age < (band + 1) * kAgesPerBand; ++age) {
        seen += cells_[cell].returned[age];
        expected += exposures[cell][age] * hazard_[age];
      }
      returns[cell].seen[band] = seen;
      returns[cell].expected[band] = expected * factor[band];
    }
  }
  return returns;
}

void HazardModel::fit_property(std::size_t property, std::vector<Returns>& cells) {
  std::array<Returns, kValues> by_value{};
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    Returns& total = by_value[cells_[cell].values[property]];
    for (std::uint32_t band = 0; band < kBands; ++band) {
      total.seen[band] += cells[cell].seen[band];
      total.expected[band] += cells[cell].expected[band];
    }
  }
  std::array<Bands, kValues> change;
  for (std::uint32_t value = 0; value < kValues; ++value) {
    const Returns& total = by_value[value];
    Factor& factor = factors_[property][value];
    float seen = kPriorReturns, expected = kPriorReturns;
    for (std::uint32_t band = 0; band < kBands; ++band) {
      seen += total.seen[band];
      expected += total.expected[band] / factor.always;
    }
    factor.always = seen / expected;
    for (std::uint32_t band = 0; band < kBands; ++band) {
      const float rest = total.expected[band] * factor.always / factor.in_band[band];
      const float now = factor.always * (total.seen[band] + kPriorReturns) / (rest + kPriorReturns);
      change[value][band] = now / std::exchange(factor.in_band[band], now);
    }
  }
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    const Bands& factor = change[cells_[cell].values[property]];
    for (std::uint32_t band = 0; band < kBands; ++band) cells[cell].expected[band] *= factor[band];
  }
}

void HazardModel::find_densities(CellState& cell) const {
  // Stretches of ages, the youngest last; an older neighbour joins while that raises the ratio.
  struct Stretch {
    float returns, time;
  };
  std::array<Stretch, kAgeClasses> stretches;
  const Bands factor = product(cell.values);
  Ages returning, survival;  // in each class, of those that reach it; to the start of each class
  for (std::uint32_t age = 0; age < ages_; ++age) {
    returning[age] = hazard_[age] * factor[age / kAgesPerBand] * kWidths[age];
    survival[age] = age == 0 ? 1 : survival[age - 1] / (1 + returning[age - 1]);
  }
  std::size_t count = 0;
  for (std::uint32_t age = ages_; age-- > 0;) {
    const float reached = survival[age] / (1 + returning[age]);
    Stretch stretch = {reached * returning[age], reached * kWidths[age]};
    for (; count > 0 && stretches[count - 1].returns * stretch.time > stretch.returns * stretches[count - 1].time;
         --count) {
      stretch.returns += stretches[count - 1].returns;
      stretch.time += stretches[count - 1].time;
    }
    stretches[count++] = stretch;
    cell.densities[age] = stretch.returns / stretch.time;
  }
  std::fill(cell.densities.begin() + ages_, cell.densities.end(), cell.densities[ages_ - 1]);
  cell.fits = fits_;
}

}  // namespace shale
