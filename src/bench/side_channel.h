// What one client can tell of another's prompts: an attacker guesses a victim's prompt, and looks at how soon the
// answer begins and at what `usage` counts as cached.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/rank_test.h"
#include "core/error.h"

namespace shale {

struct SideChannelOptions {
  std::string model = "smollm2-135m";
  std::uint32_t threads = 0;  // 0: the server's own default
  std::uint32_t tries = 200;  // of each kind, half of them right
  std::uint32_t words = 300;  // of a prompt
  std::uint64_t seed = 1;     // of prompts and of their order
};

// Right guesses, or wrong ones.
struct SideChannelGuesses {
  std::vector<double> ttft_s;         // as the attacker's client sees it
  std::vector<double> cached_tokens;  // as its `usage` says
  std::uint32_t found = 0;            // more than half of the prompt was cached
};

struct SideChannelRow {
  std::string attacker;  // "another tenant", or "the same tenant" as the victim
  SideChannelGuesses right = {}, wrong = {};
  RankTest ttft() const { return rank_test(right.ttft_s, wrong.ttft_s); }
  RankTest cached() const { return rank_test(right.cached_tokens, wrong.cached_tokens); }
};

// Starts `shale serve` with two tenants on a free port, with caches of its own. A try: the victim sends a prompt that
// nobody sent before, then the attacker that very prompt, or another of the same length. Right and wrong guesses, of
// both attackers, take turns in an order by the seed, so that what drifts meets all alike.
Result<std::vector<SideChannelRow>> measure_side_channel(const SideChannelOptions& options);

}  // namespace shale
