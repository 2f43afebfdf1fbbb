// The table of the paper "A Systematic Study of KV Cache Management for Efficient LLM Inference": hit ratios on two
// public traces, for every policy, scheduler and size. What `shale simulate reproduce` prints ours beside.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace shale {

inline constexpr std::array<std::uint64_t, 5> kPublishedBlocks = {100, 1'000, 5'000, 10'000, 100'000};

// How near ours must come, in points of a per cent printed with two decimals.
enum class Agreement {
  kExact,       // LRU: every digit
  kLastDigit,   // Hybrid: within 0.01
  kIndicative,  // LFU: which of equally used leaves goes decides, and the paper does not say which
};

struct PublishedRow {
  std::string_view trace;             // "conversation", "synthetic"
  std::string_view policy;            // the paper's name
  std::string_view ours;              // the policy here that computes the table's values
  std::string_view scheduler;         // a scheduler's name
  std::array<double, 5> hit_percent;  // at kPublishedBlocks
  Agreement agreement;
};

std::span<const PublishedRow> published_table();

// Whether our hit ratio (a fraction) agrees with a published value as its row demands; kIndicative demands nothing.
bool agrees(Agreement agreement, double hit_ratio, double published_percent);

}  // namespace shale
