#include "sim/published.h"

#include <cmath>

namespace shale {
namespace {

constexpr Agreement kExact = Agreement::kExact, kLastDigit = Agreement::kLastDigit,
                    kIndicative = Agreement::kIndicative;

constexpr PublishedRow kTable[] = {
    {"conversation", "Hybrid", "hybrid_tabulated", "fifo", {4.18, 4.45, 11.22, 21.19, 36.37}, kLastDigit},
    {"conversation", "Hybrid", "hybrid_tabulated", "longest", {4.17, 4.48, 11.22, 21.11, 36.37}, kLastDigit},
    {"conversation", "Hybrid", "hybrid_tabulated", "shortest", {4.17, 4.47, 11.21, 21.15, 36.37}, kLastDigit},
    {"conversation", "Hybrid", "hybrid_tabulated", "reuse", {4.19, 4.52, 11.55, 21.25, 36.37}, kLastDigit},
    {"conversation", "LFU", "lfu", "fifo", {4.17, 4.25, 5.93, 8.35, 26.88}, kIndicative},
    {"conversation", "LFU", "lfu", "longest", {4.17, 4.37, 5.67, 8.46, 26.65}, kIndicative},
    {"conversation", "LFU", "lfu", "shortest", {4.18, 4.32, 6.87, 8.63, 27.02}, kIndicative},
    {"conversation", "LFU", "lfu", "reuse", {4.17, 4.23, 5.63, 8.75, 27.20}, kIndicative},
    {"conversation", "LRU", "lru", "fifo", {4.18, 4.45, 11.18, 21.16, 36.37}, kExact},
    {"conversation", "LRU", "lru", "longest", {4.17, 4.48, 11.20, 21.08, 36.37}, kExact},
    {"conversation", "LRU", "lru", "shortest", {4.17, 4.47, 11.18, 21.16, 36.37}, kExact},
    {"conversation", "LRU", "lru", "reuse", {4.19, 4.52, 11.51, 21.22, 36.37}, kExact},
    {"synthetic", "Hybrid", "hybrid_tabulated", "fifo", {0.72, 8.56, 27.94, 42.42, 63.96}, kLastDigit},
    {"synthetic", "Hybrid", "hybrid_tabulated", "longest", {0.72, 8.56, 27.94, 42.42, 63.96}, kLastDigit},
    {"synthetic", "Hybrid", "hybrid_tabulated", "shortest", {0.72, 8.56, 27.94, 42.42, 63.96}, kLastDigit},
    {"synthetic", "Hybrid", "hybrid_tabulated", "reuse", {0.72, 8.56, 27.94, 42.42, 63.96}, kLastDigit},
    {"synthetic", "LFU", "lfu", "fifo", {0.00, 1.34, 8.42, 17.40, 63.96}, kIndicative},
    {"synthetic", "LFU", "lfu", "longest", {0.02, 1.33, 7.84, 17.68, 63.96}, kIndicative},
    {"synthetic", "LFU", "lfu", "shortest", {0.01, 0.99, 8.18, 14.97, 63.96}, kIndicative},
    {"synthetic", "LFU", "lfu", "reuse", {0.07, 1.85, 9.18, 15.62, 63.96}, kIndicative},
    {"synthetic", "LRU", "lru", "fifo", {0.71, 8.41, 27.93, 42.39, 63.96}, kExact},
    {"synthetic", "LRU", "lru", "longest", {0.71, 8.41, 27.93, 42.39, 63.96}, kExact},
    {"synthetic", "LRU", "lru", "shortest", {0.71, 8.41, 27.93, 42.39, 63.96}, kExact},
    {"synthetic", "LRU", "lru", "reuse", {0.71, 8.41, 27.93, 42.39, 63.96}, kExact},
};

}  // namespace

std::span<const PublishedRow> published_table() { return kTable; }

bool agrees(Agreement agreement, double hit_ratio, double published_percent) {
  const long digits = std::abs(std::lround(hit_ratio * 1e4) - std::lround(published_percent * 1e2));
  return agreement == kIndicative || digits <= (agreement == kExact ? 0 : 1);
}

}  // namespace shale
