#include "scoring/budget.h"

#include <fmt/ranges.h>

#include <array>
#include <cassert>

#include "scoring/budgets.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

struct BudgetEntry {
  std::string_view name;
  std::unique_ptr<Budget> (*make)();
};

// Alphabetical.
constexpr auto kBudgets = std::to_array<BudgetEntry>({
    {"adakv", make_adakv},
    {"pyramid", make_pyramid},
    {"uniform", make_uniform},
});

}  // namespace

Kept Budget::select(const ModelScores& scores, double keep, std::uint32_t window) const {
  assert(scores.scores.size() == std::size_t{scores.layers} * scores.kv_heads * scores.tokens);
  assert(keep > 0 && keep <= 1);
  if (scores.scores.empty()) return {};
  return select_impl(scores, keep, window);
}

void keep_best(std::span<const float> scores, std::uint32_t count, std::span<std::uint8_t> kept) {
  const std::vector<std::uint32_t> order = ranking(scores);
  for (const std::uint32_t token : std::span(order).first(count)) kept[token] = 1;
}

std::vector<std::string_view> budget_names() {
  std::vector<std::string_view> names;
  for (const BudgetEntry& entry : kBudgets) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<Budget>> make_budget(std::string_view name) {
  for (const BudgetEntry& entry : kBudgets) {
    if (entry.name == name) return entry.make();
  }
  return fail(ErrorCode::kInvalidArgument, "unknown budget '{}'; known are {}", name, fmt::join(budget_names(), ", "));
}

}  // namespace shale
