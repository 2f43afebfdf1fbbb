#include "paging/compaction.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>

namespace shale {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"none", "repack", "hole_fill"};

class Plan {
 public:
  Plan(std::span<const PageSlot> table, std::uint32_t block_size) : block_size_(block_size) {
    for (const PageSlot& slot : table) plan_.live.push_back(slot.live());
  }

  bool live(std::uint32_t slot) const { return plan_.live[slot / block_size_] >> slot % block_size_ & 1; }

  void move(std::uint32_t from, std::uint32_t to) {
    if (from == to) return;
    plan_.live[from / block_size_] &= ~bit(from);
    plan_.live[to / block_size_] |= bit(to);
    if (!plan_.copies.empty()) {
      SlotCopy& last = plan_.copies.back();
      const std::uint32_t next_from = last.from + last.count, next_to = last.to + last.count;
      if (from == next_from && to == next_to && from % block_size_ != 0 && to % block_size_ != 0) {
        ++last.count;
        return;
      }
    }
    plan_.copies.push_back({from, to, 1});
  }

  CompactionPlan finish() && {
    plan_.pages_freed = static_cast<std::uint32_t>(std::ranges::count(plan_.live, 0));
    return std::move(plan_);
  }

 private:
  std::uint64_t bit(std::uint32_t slot) const { return std::uint64_t{1} << slot % block_size_; }

  std::uint32_t block_size_;
  CompactionPlan plan_;
};

}  // namespace

std::string_view to_string(Compaction compaction) { return kNames[static_cast<std::size_t>(compaction)]; }

Result<Compaction> parse_compaction(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    return fail(ErrorCode::kInvalidArgument, "no compaction is called {}: none, repack and hole_fill are", name);
  }
  return static_cast<Compaction>(found - kNames.begin());
}

std::uint32_t CompactionPlan::slots_copied() const {
  std::uint32_t slots = 0;
  for (const SlotCopy& copy : copies) slots += copy.count;
  return slots;
}

CompactionPlan plan_repack(std::span<const PageSlot> table, std::span<const std::uint8_t> movable,
                           std::uint32_t block_size) {
  assert(movable.size() == table.size());
  Plan plan(table, block_size);
  // Slots of movable pages, in order: `to` never overtakes the token that is looked at.
  std::uint32_t to = 0;
  const auto next = [&](std::uint32_t slot) {
    ++slot;
    while (slot / block_size < table.size() && !movable[slot / block_size]) slot += block_size;
    return slot;
  };
  while (to / block_size < table.size() && !movable[to / block_size]) to += block_size;
  for (std::uint32_t page = 0; page < table.size(); ++page) {
    if (!movable[page]) continue;
    for (std::uint32_t s = 0; s < table[page].count; ++s) {
      const std::uint32_t from = page * block_size + s;
      if (!plan.live(from)) continue;
      plan.move(from, to);
      to = next(to);
    }
  }
  return std::move(plan).finish();
}

CompactionPlan plan_hole_fill(std::span<const PageSlot> table, std::span<const std::uint8_t> movable,
                              std::uint32_t block_size, std::uint32_t newest) {
  assert(movable.size() == table.size());
  Plan plan(table, block_size);
  std::uint32_t end = static_cast<std::uint32_t>(table.size()) * block_size;
  const auto last_survivor = [&]() -> std::optional<std::uint32_t> {
    while (end > newest) {
      --end;
      if (movable[end / block_size] && plan.live(end)) return end;
    }
    return std::nullopt;
  };
  for (std::uint32_t page = 0; page < table.size() && page * block_size < newest; ++page) {
    if (!movable[page] || !table[page].live()) continue;
    for (std::uint32_t s = 0; s < block_size && page * block_size + s < newest; ++s) {
      if (table[page].live() >> s & 1) continue;
      const auto survivor = last_survivor();
      if (!survivor) return std::move(plan).finish();
      plan.move(*survivor, page * block_size + s);
    }
  }
  return std::move(plan).finish();
}

}  // namespace shale
