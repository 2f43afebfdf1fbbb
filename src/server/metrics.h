// What is going on, in numbers, as the engine's thread leaves it for others to read.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "profile/quality_watch.h"

namespace shale {

// Counts of attention statistics in buckets, as Prometheus has histograms.
class Histogram {
 public:
  // `bounds`: upper bounds, ascending, of static storage; one more bucket takes the rest.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  void observe(double value);

  std::span<const double> bounds() const { return bounds_; }
  std::span<const std::uint64_t> counts() const { return counts_; }  // a bucket each, not summed up
  std::uint64_t count() const;
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

// vLLM's buckets: seconds, and tokens.
inline constexpr std::array kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                                  0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                                  20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
inline constexpr std::array kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                             0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr std::array kRequestSeconds = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                               30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
inline constexpr std::array kRequestTokens = {1.0,   2.0,    5.0,    10.0,   20.0,    50.0,    100.0,   200.0,
                                              500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0};

// Since the server began.
struct RequestMetrics {
  // Requests by StopReason; and those refused before they began: the queue was full, or the engine could never serve
  // them.
  std::array<std::uint64_t, 7> finished = {};
  std::uint64_t overloaded = 0, refused = 0;
  std::uint64_t lossy = 0;                                // of the finished
  std::uint64_t prompt_tokens = 0, generated_tokens = 0;  // of the finished; prompts of those that had begun
  CachedTokens cached;
  Histogram ttft_seconds{kFirstTokenSeconds}, tpot_seconds{kTokenSeconds};
  Histogram gap_seconds{kTokenSeconds};  // of tpot_seconds each one that its mean is of
  Histogram queue_seconds{kRequestSeconds}, total_seconds{kRequestSeconds};
  Histogram prefill_seconds{kRequestSeconds};  // from where it began to its first token
  Histogram decode_seconds{kRequestSeconds};   // from there to its last
  Histogram prompt_lengths{kRequestTokens}, answer_lengths{kRequestTokens};
  Histogram longest_answers{kRequestTokens};   // of each request to the server: of its choices
  Histogram computed_lengths{kRequestTokens};  // of a prompt, what no cache gave

  // `seconds`: from submission to the end.
  void finish(const Response& response, double seconds);
};

struct TierMetrics {
  std::string name;
  std::uint64_t capacity_bytes = 0, used_bytes = 0;
  TierStats stats = {};
  TierSpeed speed = {};
  TierQueue reads = {}, writes = {};  // running now
  std::optional<BreakerState> breaker = {};
};

// Sums of finished requests.
struct TenantServed {
  std::uint64_t requests = 0, prompt_tokens = 0, generated_tokens = 0;
  CachedTokens cached;
  double queue_seconds = 0;
};

struct TenantMetrics {
  std::string name;
  std::uint64_t requests = 0, refused = 0;  // those refused for having too many running
  std::uint32_t running = 0;
  TenantServed served;
  StoreTenantStats store;
};

struct ServerMetrics {
  RequestMetrics requests;
  EngineStats engine;
  std::uint32_t running = 0, waiting = 0, preempted = 0, loading = 0;  // requests now; loading ones are running, too
  Occupancy occupancy;
  QualityWatchStats watch;
  std::string metric{kAgreement};  // that quality is measured in
  double quality_floor = 0;
  CacheStats cache;
  StoreStats store;
  // Pages of the pool: evictable ones are only kept for later requests.
  std::uint64_t pages_total = 0, pages_free = 0, pages_evictable = 0, page_bytes = 0;
  std::vector<TierMetrics> tiers = {};
  std::map<std::string, TenantServed> served = {};  // by tenant; none: requests without one
  std::vector<TenantMetrics> tenants = {};
};

}  // namespace shale
