#include "server/tier_news.h"

#include <fmt/format.h>

namespace shale {

std::vector<std::string> TierNews::look(const std::vector<State>& states, double now_s) {
  std::vector<std::string> lines;
  for (const State& state : states) {
    const auto known = last_seen_s_.find(state.tier);
    if (state.trouble) {
      if (known == last_seen_s_.end()) {
        lines.push_back(fmt::format("tier {}: {}; answers go on without it", state.tier, *state.trouble));
      }
      last_seen_s_[state.tier] = now_s;
    } else if (known != last_seen_s_.end() && now_s - known->second >= kEndedAfterS) {
      lines.push_back(fmt::format("tier {} works again", state.tier));
      last_seen_s_.erase(known);
    }
  }
  return lines;
}

}  // namespace shale
