#include "scoring/budgets/budget.h"

#include <fmt/ranges.h>

#include <array>
#include <cassert>

#include "scoring/budgets/budgets.h"
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
    {"global", make_global},
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

void keep_best_of_heads(std::span<const float> scores, std::size_t tokens, std::size_t count,
                        std::span<std::uint8_t> kept) {
  // The ranking breaks ties by index, so tokens come first in it: [tokens][heads].
  const std::size_t heads = scores.size() / tokens;
  std::vector<float> by_token(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) by_token[i % tokens * heads + i / tokens] = scores[i];
  for (const std::uint32_t place : ranking(by_token)) {
    if (count == 0) return;
    std::uint8_t& token = kept[place % heads * tokens + place / heads];
    count -= token == 0 ? 1 : 0;
    token = 1;
  }
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
