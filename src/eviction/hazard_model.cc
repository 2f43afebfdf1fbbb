#include "eviction/hazard_model.h"

#include <numeric>
#include <utility>

#include "paging/reserve_tightly.h"

namespace shale {
namespace {

constexpr float kPriorReturns = 2;
// Returns of one block that lived through all ages before anything was seen: the older, the less likely, as LRU.
constexpr float kUnseenReturns = 1e-3f;
constexpr std::size_t kCellsMax = 8192;
constexpr int kNameBits = 14;
constexpr std::size_t kNamesMax = std::size_t{1} << kNameBits;
static_assert(kNamesMax >= 2 * kCellsMax);
constexpr std::uint32_t kShared = 0x0FFFFFFF;  // the values of the cell that is shared

// 0, 1, 2-3, 4-7 …, no more than `last`.
std::uint32_t octave(std::uint32_t count, std::uint32_t last) {
  return std::min(static_cast<std::uint32_t>(std::bit_width(count)), last);
}

// The width of each class of age, in ticks.
constexpr auto kWidths = [] {
  std::array<float, HazardModel::kAgeClasses> widths;
  for (std::uint32_t age = 0; age < widths.size(); ++age) {
    widths[age] = static_cast<float>(HazardModel::youngest(age + 1) - HazardModel::youngest(age));
  }
  return widths;
}();

}  // namespace

HazardModel::HazardModel(std::uint32_t without) : without_(without), named_(kNamesMax) {
  for (std::uint32_t age = 0; age < kAgeClasses; ++age) {
    hazard_[age] = kUnseenReturns / (static_cast<float>(youngest(age)) + 1);
  }
  for (auto& property : factors_) {
    for (Factor& factor : property) factor.in_band.fill(1);
  }
  add_cell(kShared);
}

HazardModel::Values HazardModel::values_of(const Visit& visit) const {
  const std::array<std::uint32_t, kProperties.size()> all = {visit.partial,
                                                             octave(visit.visits, 6),
                                                             octave(visit.turn, 6),
                                                             4 * octave(visit.visits, 3) + octave(visit.turn, 3),
                                                             octave(visit.fresh_blocks, 11),
                                                             octave(visit.answer_tokens, 12),
                                                             octave(visit.gap, 14)};
  Values values = 0;
  for (std::size_t property = 0; property < all.size(); ++property) {
    if (!(without_ >> property & 1)) values |= all[property] << 4 * property;
  }
  return values;
}

HazardModel::Cell HazardModel::add_cell(Values values) {
  reserve_tightly(cells_, cells_.size() + 1);
  cells_.push_back({.values = values});
  return static_cast<Cell>(cells_.size() - 1);
}

HazardModel::Cell HazardModel::cell(const Visit& visit) {
  if (visit == last_visit_) return last_cell_;
  last_visit_ = visit;
  const Values values = values_of(visit);
  std::size_t name = values * 0x9E3779B1u >> (32 - kNameBits);
  while (named_[name] != 0 && cells_[named_[name]].values != values) name = (name + 1) % kNamesMax;
  if (named_[name] == 0 && cells_.size() < kCellsMax) named_[name] = add_cell(values);
  return last_cell_ = named_[name];
}

HazardModel::Sample HazardModel::begin(Cell cell, std::uint32_t tick) {
  Sample sample = unused_;
  if (sample == kNoSample) {
    sample = static_cast<Sample>(waiting_.size());
    resize_tightly(waiting_, waiting_.size() + 1);
  } else {
    unused_ = waiting_[sample].tick;
  }
  waiting_[sample] = {tick, cell, false};
  return sample;
}

void HazardModel::end(Sample sample, std::uint32_t tick, bool returned) {
  if (sample == kNoSample) return;
  const Waiting waiting = std::exchange(waiting_[sample], {unused_, 0, true});
  unused_ = sample;
  const std::uint32_t age = age_class(tick - waiting.tick);
  ages_ = std::max(ages_, age + 1);
  std::uint32_t& first = cells_[waiting.cell].ended;
  std::uint32_t at = first;
  while (at != kNoEnded && (ended_[at].age != age || ended_[at].returned != returned)) at = ended_[at].next;
  if (at == kNoEnded) {
    at = static_cast<std::uint32_t>(ended_.size());
    reserve_tightly(ended_, ended_.size() + 1);
    ended_.push_back({0, std::exchange(first, at) & kNoEnded, age & 63, returned});
  }
  ended_[at].count += 1;
}

HazardModel::Bands HazardModel::product(Values values) const {
  Bands product;
  product.fill(1);
  for (std::size_t property = 0; property < kProperties.size(); ++property) {
    const Bands& factor = factors_[property][value(values, property)].in_band;
    for (std::uint32_t band = 0; band < kBands; ++band) product[band] *= factor[band];
  }
  return product;
}

void HazardModel::fit(std::uint32_t tick, float kept) {
  std::vector<Returns> cells = returns(tick);
  for (std::size_t property = 0; property < kProperties.size(); ++property) fit_property(property, cells);
  for (Ended& ended : ended_) ended.count *= kept;
  for (CellState& cell : cells_) cell.densities = kNone;
  densities_.clear();
}

HazardModel::WaitingAges HazardModel::waiting_ages(std::uint32_t tick) {
  std::vector<std::uint32_t> from(cells_.size() + 2);
  for (const Waiting& waiting : waiting_) from[waiting.cell + 2] += waiting.ended ? 0 : 1;
  std::partial_sum(from.begin(), from.end(), from.begin());
  std::vector<std::uint8_t> ages(from.back());
  for (const Waiting& waiting : waiting_) {
    if (waiting.ended) continue;
    const std::uint32_t age = age_class(tick - waiting.tick);
    ages[from[waiting.cell + 1]++] = static_cast<std::uint8_t>(age);
    ages_ = std::max(ages_, age + 1);
  }
  return {std::move(from), std::move(ages)};
}

std::vector<HazardModel::Returns> HazardModel::returns(std::uint32_t tick) {
  const auto [waiting_from, waiting_ages] = this->waiting_ages(tick);
  // In each class of age: samples that returned, and the time that samples spent there, all of it where they ended
  // later, half where they ended in it.
  struct Exposure {
    float returned, time;
  };
  struct Exposed {
    Values values;
    std::uint32_t ages;  // from the youngest on
  };
  std::vector<Exposure> exposures;  // of all cells, one after the other
  std::vector<Exposed> exposed_cells;
  exposed_cells.reserve(cells_.size());
  Ages all_returned{}, all_exposed{};
  Ages waiting{}, returned{}, lost{};  // of one cell
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    std::uint32_t ages = 0;
    for (std::uint32_t at = cells_[cell].ended; at != kNoEnded; at = ended_[at].next) {
      const Ended& ended = ended_[at];
      (ended.returned ? returned : lost)[ended.age] = ended.count;
      ages = std::max(ages, ended.age + 1u);
    }
    for (std::uint32_t at = waiting_from[cell]; at < waiting_from[cell + 1]; ++at) {
      waiting[waiting_ages[at]] += 1;
      ages = std::max(ages, waiting_ages[at] + 1u);
    }
    if (ages == 0) continue;
    exposed_cells.push_back({cells_[cell].values, ages});
    exposures.resize(exposures.size() + ages);
    Exposure* const of = exposures.data() + exposures.size() - ages;
    float later = 0;
    for (std::uint32_t age = ages; age-- > 0;) {
      const float came = std::exchange(returned[age], 0.f);
      const float ended = std::exchange(waiting[age], 0.f) + came + std::exchange(lost[age], 0.f);
      of[age] = {came, (later + ended / 2) * kWidths[age]};
      later += ended;
      all_returned[age] += came;
      all_exposed[age] += of[age].time;
    }
  }
  for (std::uint32_t age = 0; age < ages_; ++age) {
    hazard_[age] = (all_returned[age] + kUnseenReturns) / (all_exposed[age] + static_cast<float>(youngest(age)) + 1);
  }

  std::vector<Returns> returns;
  returns.reserve(exposed_cells.size());
  const Exposure* of = exposures.data();
  for (const Exposed& cell : exposed_cells) {
    Returns& total = returns.emplace_back(cell.values);
    for (std::uint32_t age = 0; age < cell.ages; ++age, ++of) {
      total.seen[age / kAgesPerBand] += of->returned;
      total.expected[age / kAgesPerBand] += of->time * hazard_[age];
    }
    const Bands factor = product(cell.values);
    for (std::uint32_t band = 0; band < kBands; ++band) total.expected[band] *= factor[band];
  }
  return returns;
}

void HazardModel::fit_property(std::size_t property, std::vector<Returns>& cells) {
  std::array<Returns, kValues> by_value{};
  for (const Returns& cell : cells) {
    Returns& total = by_value[value(cell.values, property)];
    for (std::uint32_t band = 0; band < kBands; ++band) {
      total.seen[band] += cell.seen[band];
      total.expected[band] += cell.expected[band];
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
  for (Returns& cell : cells) {
    const Bands& factor = change[value(cell.values, property)];
    for (std::uint32_t band = 0; band < kBands; ++band) cell.expected[band] *= factor[band];
  }
}

void HazardModel::find_densities(CellState& cell) {
  // Span of ages, the youngest last; an older neighbour joins while that raises the ratio.
  struct Span {
    float returns, time;
  };
  std::array<Span, kAgeClasses> spans;
  const Bands factor = product(cell.values);
  Ages returning;                                     // in each class, of those that reach it
  std::array<float, kAgeClasses + 1> survival = {1};  // to the start of each class
  for (std::uint32_t age = 0; age < ages_; ++age) {
    returning[age] = hazard_[age] * factor[age / kAgesPerBand] * kWidths[age];
    survival[age + 1] = survival[age] / (1 + returning[age]);
  }
  cell.densities = static_cast<std::uint32_t>(densities_.size());
  resize_tightly(densities_, densities_.size() + 1);
  Ages& densities = densities_.back();
  std::size_t count = 0;
  for (std::uint32_t age = ages_; age-- > 0;) {
    Span span = {survival[age + 1] * returning[age], survival[age + 1] * kWidths[age]};
    for (; count > 0 && spans[count - 1].returns * span.time > span.returns * spans[count - 1].time; --count) {
      span.returns += spans[count - 1].returns;
      span.time += spans[count - 1].time;
    }
    spans[count++] = span;
    densities[age] = span.returns / span.time;
  }
  std::fill(densities.begin() + ages_, densities.end(), densities[ages_ - 1]);
}

}  // namespace shale
