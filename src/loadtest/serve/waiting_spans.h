// How many requests of a load depend on one another because they waited together: what is resampled as one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace shale {

inline constexpr std::size_t kSpanLeast = 10;  // requests of a span
inline constexpr std::size_t kSpansLeast = 4;  // of a run: with fewer, resampling says nothing

struct Waited {
  double arrival_s = 0, ttft_s = 0;
};

// The most requests of a run, which are in order, that came while one of them waited for its first token, itself among
// them.
inline std::size_t waited_together(std::span<const Waited> run) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto later = std::ranges::upper_bound(run, run[i].arrival_s + run[i].ttft_s, {}, &Waited::arrival_s);
    most = std::max(most, static_cast<std::size_t>(later - run.begin()) - i);
  }
  return most;
}

}  // namespace shale
