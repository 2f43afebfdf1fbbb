#include "placement/promotion.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace shale {

bool Promotion::later(const Step& a, const Step& b) {
  return std::tie(a.gain_per_byte, a.gain, b.entry) < std::tie(b.gain_per_byte, b.gain, a.entry);
}

std::optional<Promotion::Step> Promotion::best_step(std::size_t e, std::uint32_t tier,
                                                    std::uint64_t bytes_below) const {
  const PlacedEntry& entry = board_.entry(e);
  if (entry.pinned) return std::nullopt;
  const Candidate& current = board_.at(e);
  const double present = board_.utility_of(e, current);
  const std::uint64_t held = current.tier == tier ? current.bytes : 0;
  std::optional<Step> best;
  for (std::uint32_t c = 0; c < entry.candidates.size(); ++c) {
    const Candidate& candidate = entry.candidates[c];
    if (candidate.tier != tier || candidate.bytes >= bytes_below || !could_fit(board_.problem(), candidate)) continue;
    const double gain = board_.utility_of(e, candidate) - present;
    if (!(gain > 0)) continue;
    const double gain_per_byte = candidate.bytes > held ? gain / static_cast<double>(candidate.bytes - held)
                                                        : std::numeric_limits<double>::infinity();
    const Step step{gain_per_byte, gain, e, c, board_.version(e), bytes_below};
    if (!best || later(*best, step)) best = step;
  }
  return best;
}

bool Promotion::take(const Step& step) {
  const std::size_t before = board_.moves();
  relief_.move(step.entry, step.to);
  if (relief_.run(step.gain / (1 + hysteresis_), step.entry)) return true;
  relief_.undo(before);
  return false;
}

void Promotion::fill(std::uint32_t tier) {
  constexpr std::uint64_t kAnySize = ~std::uint64_t{0};
  std::vector<Step> heap;
  for (std::size_t e = 0; e < board_.problem().entries.size(); ++e) {
    if (const auto step = best_step(e, tier, kAnySize)) heap.push_back(*step);
  }
  std::ranges::make_heap(heap, later);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Step step = heap.back();
    heap.pop_back();
    std::uint64_t bytes_below = step.bytes_below;
    if (step.version == board_.version(step.entry) && !take(step)) {
      bytes_below = board_.entry(step.entry).candidates[step.to].bytes;
    }
    if (const auto next = best_step(step.entry, tier, bytes_below)) {
      heap.push_back(*next);
      std::ranges::push_heap(heap, later);
    }
  }
}

void Promotion::run() {
  for (std::uint32_t tier = 0; tier < board_.problem().tiers.size(); ++tier) fill(tier);
}

}  // namespace shale
