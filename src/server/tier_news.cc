#include "server/tier_news.h"

#include <fmt/format.h>

#include <utility>

namespace shale {
namespace {

std::string begin_line(const TierNews::State& state) {
  const std::string why = state.trouble.value_or("");
  if (state.of_removals) return fmt::format("tier {}: what is to be removed stays for now: {}", state.tier, why);
  return fmt::format("tier {}: {}; answers go on without it", state.tier, why);
}

}  // namespace

std::vector<std::string> TierNews::look(const std::vector<State>& states, double now_s) {
  std::vector<std::string> lines;
  for (const State& state : states) {
    const std::pair key(state.tier, state.of_removals);
    const auto known = last_seen_s_.find(key);
    if (state.of_removals && last_seen_s_.contains({state.tier, false})) {  // what it removes then tells nothing
      if (known != last_seen_s_.end()) known->second = now_s;
    } else if (state.trouble) {
      if (known == last_seen_s_.end()) {
        lines.push_back(begin_line(state));
      }
      last_seen_s_[key] = now_s;
    } else if (known != last_seen_s_.end() && now_s - known->second >= kEndedAfterS) {
      lines.push_back(fmt::format("tier {} {} again", state.tier, state.of_removals ? "removes" : "works"));
      last_seen_s_.erase(known);
    }
  }
  return lines;
}

std::vector<TierNews::State> tier_states(const Cache& cache, const StoreStats& stats) {
  std::vector<TierNews::State> states;
  for (std::size_t i = 0; i < cache.tiers().size(); ++i) {
    TierNews::State state{cache.tiers()[i]->name(), std::nullopt};
    if (!stats.tiers[i].trouble.empty()) {
      state.trouble = stats.tiers[i].trouble;
    } else if (!cache.waits_for(i)) {
      state.trouble = "does not answer in time";
    }
    TierNews::State removals{.tier = state.tier, .trouble = std::nullopt, .of_removals = true};
    if (!stats.tiers[i].unremoved.empty()) removals.trouble = stats.tiers[i].unremoved;
    states.insert(states.end(), {std::move(state), std::move(removals)});
  }
  return states;
}

}  // namespace shale
