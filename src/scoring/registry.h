// The scorers there are. Each is one file of scorers/; adding one adds its file and its line here.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "scoring/scorer.h"

// Alphabetical.
#define SHALE_SCORERS(X) \
  X(expected_attention)  \
  X(h2o)                 \
  X(impress)             \
  X(keydiff)             \
  X(knorm)               \
  X(kvzip)               \
  X(observed_attention)  \
  X(random)              \
  X(rkv)                 \
  X(scissorhands)        \
  X(snapkv)              \
  X(streaming)           \
  X(tova)                \
  X(triattention)        \
  X(vk_ratio)

namespace shale {

// Defined by the scorer's file: make_keydiff and so on. kInvalidArgument for options out of range.
#define SHALE_DECLARE(name) Result<std::unique_ptr<Scorer>> make_##name(const ScorerOptions& options);
SHALE_SCORERS(SHALE_DECLARE)
#undef SHALE_DECLARE

// Checks the options of scorers with a window and a pooling kernel.
Status check_window(std::string_view scorer, const ScorerOptions& options);

struct ScorerEntry {
  std::string_view name;
  Result<std::unique_ptr<Scorer>> (*make)(const ScorerOptions& options);
};

#define SHALE_ENTRY(name) ScorerEntry{#name, make_##name},
inline constexpr auto kScorers = std::to_array<ScorerEntry>({SHALE_SCORERS(SHALE_ENTRY)});
#undef SHALE_ENTRY

}  // namespace shale
