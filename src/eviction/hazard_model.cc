#include "eviction/hazard_model.h"

namespace shale {
namespace {

constexpr float kPriorReturns = 2;
// Of one block that lived through all ages before anything was seen: the older, the less likely to return, as LRU.
constexpr float kUnseenReturns = 1e-3f;

constexpr std::uint32_t kVisitBits = 4, kTurnBits = 3, kFreshBits = 4;

// 0, 1, 2-3, 4-7 …, in so many bits.
std::uint32_t octave(std::uint32_t count, std::uint32_t bits) {
  return std::min(static_cast<std::uint32_t>(std::bit_width(count)), (1u << bits) - 1);
}

constexpr float width(std::uint32_t age_class) {
  return static_cast<float>(HazardModel::youngest(age_class + 1) - HazardModel::youngest(age_class));
}

}  // namespace

HazardModel::HazardModel() : named_(std::size_t{2} << (1 + kVisitBits + kTurnBits + kFreshBits)) {
  add_cell(0);
  fit_cell(0, {});
}

HazardModel::Cell HazardModel::add_cell(Cell parent) {
  const auto cell = static_cast<Cell>(parents_.size());
  parents_.push_back(parent);
  counts_.emplace_back();
  hazards_.push_back(cell == 0 ? Ages{} : Ages(hazards_[parent]));
  densities_.push_back(cell == 0 ? Ages{} : Ages(densities_[parent]));
  return cell;
}

HazardModel::Cell HazardModel::cell(const Visit& visit) {
  std::uint32_t name = 1;
  Cell cell = 0;
  const auto refine = [&](std::uint32_t property, std::uint32_t bits) {
    name = (name << bits) | property;
    if (named_[name] == 0) named_[name] = add_cell(cell);
    cell = named_[name];
  };
  refine(visit.partial, 1);
  refine(octave(visit.visits, kVisitBits), kVisitBits);
  refine(octave(visit.turn, kTurnBits), kTurnBits);
  refine(octave(visit.fresh_blocks, kFreshBits), kFreshBits);
  return cell;
}

HazardModel::Sample HazardModel::begin(Cell cell, std::uint32_t tick) {
  if (unused_.empty()) {
    waiting_.push_back({tick, cell});
    return static_cast<Sample>(waiting_.size() - 1);
  }
  const Sample sample = unused_.back();
  unused_.pop_back();
  waiting_[sample] = {tick, cell};
  return sample;
}

void HazardModel::end(Sample sample, std::uint32_t tick, bool returned) {
  if (sample == kNoSample) return;
  Waiting& waiting = waiting_[sample];
  Counts& counts = counts_[waiting.cell];
  const std::uint32_t age = age_class(tick - waiting.tick);
  (returned ? counts.returned : counts.lost)[age] += 1;
  ages_ = std::max(ages_, age + 1);
  waiting.cell = 0;
  unused_.push_back(sample);
}

void HazardModel::fit(std::uint32_t tick, float kept) {
  totals_ = counts_;
  for (const Waiting& waiting : waiting_) {
    if (waiting.cell == 0) continue;
    const std::uint32_t age = age_class(tick - waiting.tick);
    totals_[waiting.cell].lost[age] += 1;
    ages_ = std::max(ages_, age + 1);
  }
  for (std::size_t cell = totals_.size(); --cell > 0;) {
    Counts& parent = totals_[parents_[cell]];
    for (std::uint32_t age = 0; age < kAgeClasses; ++age) {
      parent.returned[age] += totals_[cell].returned[age];
      parent.lost[age] += totals_[cell].lost[age];
    }
  }
  for (std::size_t cell = 0; cell < totals_.size(); ++cell) fit_cell(static_cast<Cell>(cell), totals_[cell]);
  for (Counts& counts : counts_) {
    for (float& count : counts.returned) count *= kept;
    for (float& count : counts.lost) count *= kept;
  }
}

void HazardModel::fit_cell(Cell cell, const Counts& counts) {
  // The time that samples spent in each class of age: all of it where they ended later, half where they ended in it.
  Ages exposure;
  float later = 0;
  for (std::uint32_t age = ages_; age-- > 0;) {
    const float ended = counts.returned[age] + counts.lost[age];
    exposure[age] = (later + ended / 2) * width(age);
    later += ended;
  }
  Ages& hazard = hazards_[cell];
  if (cell == 0) {
    for (std::uint32_t age = 0; age < ages_; ++age) {
      hazard[age] = (counts.returned[age] + kUnseenReturns) / (exposure[age] + static_cast<float>(youngest(age)) + 1);
    }
  } else {
    const Ages& prior = hazards_[parents_[cell]];
    float seen = kPriorReturns, expected = kPriorReturns;
    for (std::uint32_t age = 0; age < ages_; ++age) {
      seen += counts.returned[age];
      expected += exposure[age] * prior[age];
    }
    const float scale = seen / expected;
    for (std::uint32_t age = 0; age < ages_; ++age) {
      const float rate = prior[age] * scale;
      hazard[age] = (counts.returned[age] + kPriorReturns) * rate / (exposure[age] * rate + kPriorReturns);
    }
  }
  find_densities(hazard, densities_[cell]);
}

void HazardModel::find_densities(const Ages& hazard, Ages& density) const {
  // Stretches of ages, the youngest last; an older neighbour joins while that raises the ratio.
  struct Stretch {
    float returns, time;
  };
  std::array<Stretch, kAgeClasses> stretches;
  Ages survival;  // to the start of each class
  survival[0] = 1;
  for (std::uint32_t age = 1; age < ages_; ++age) {
    survival[age] = survival[age - 1] / (1 + hazard[age - 1] * width(age - 1));
  }
  std::size_t count = 0;
  for (std::uint32_t age = ages_; age-- > 0;) {
    const float returned = hazard[age] * width(age);
    Stretch stretch = {survival[age] * returned / (1 + returned), survival[age] * width(age) / (1 + returned)};
    for (; count > 0 && stretches[count - 1].returns * stretch.time > stretch.returns * stretches[count - 1].time;
         --count) {
      stretch.returns += stretches[count - 1].returns;
      stretch.time += stretches[count - 1].time;
    }
    stretches[count++] = stretch;
    density[age] = stretch.returns / stretch.time;
  }
  std::fill(density.begin() + ages_, density.end(), density[ages_ - 1]);
}

}  // namespace shale
