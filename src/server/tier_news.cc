#include "server/tier_news.h"

#include <fmt/format.h>

namespace shale {

std::vector<std::string> TierNews::look(const std::vector<State>& states, double now_s) {
  std::vector<std::string> lines;
  for (const State& state : states) {
    const auto known = last_seen_s_.find(state.tier);
    if (state.trouble) {
      if (known == last_seen_s_.end()) {
        lines.push_back(begin_line(state));
      }
      last_seen_s_[state.tier] = now_s;
    } else if (known != last_seen_s_.end() && now_s - known->second >= kEndedAfterS) {
      lines.push_back(fmt::format("tier {} works again", state.tier));
      last_seen_s_.erase(known);
    }
  }
  return lines;
}

std::vector<TierNews::State> tier_states(const Cache& cache) {
  const StoreStats stats = cache.store().stats();
  std::vector<TierNews::State> states;
  for (std::size_t i = 0; i < cache.tiers().size(); ++i) {
    TierNews::State& state = states.emplace_back(TierNews::State{cache.tiers()[i]->name(), std::nullopt});
    if (!stats.tiers[i].trouble.empty()) {
      state.trouble = stats.tiers[i].trouble;
    } else if (!cache.waits_for(i)) {
      state.trouble = "does not answer in time";
    }
  }
  return states;
}

std::string begin_line(const TierNews::State& state) {
  return fmt::format("tier {}: {}; answers go on without it", state.tier, state.trouble.value_or(""));
}

}  // namespace shale
