#include "microbench/hazard.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "eviction/hazard.h"
#include "eviction/optimum.h"
#include "eviction/policies.h"
#include "microbench/simulate.h"
#include "sim/prefix_cache.h"

namespace shale::bench {
namespace {

constexpr int kFitsInHindsight = 20;  // until the factors stand still

std::uint32_t without(std::initializer_list<std::string_view> names) {
  std::uint32_t properties = 0;
  for (const std::string_view name : names) {
    properties |= 1u << (std::ranges::find(HazardModel::kProperties, name) - HazardModel::kProperties.begin());
  }
  return properties;
}

struct Variant {
  std::string_view name;
  std::uint32_t without = 0;
  std::uint64_t ghosts_per_block = 0;  // 0: as the policy chooses
};

std::vector<Variant> variants() {
  return {{"hazard"},
          {"without partial", without({"partial"})},
          {"without visits and the pair", without({"visits", "visits and turn"})},
          {"without turn and the pair", without({"turn", "visits and turn"})},
          {"without the pair", without({"visits and turn"})},
          {"without fresh blocks", without({"fresh blocks"})},
          {"without answer tokens", without({"answer tokens"})},
          {"without gap", without({"gap"})},
          {"age alone", (1u << HazardModel::kProperties.size()) - 1},
          {"1 ghost a block", 0, 1},
          {"4 ghosts a block", 0, 4},
          {"64 ghosts a block", 0, 64}};
}

class Study {
 public:
  Study(const Trace& trace, const HazardStudyOptions& options, const std::function<Status(const HazardRow&)>& on_row)
      : trace_(trace), options_(options), on_row_(on_row) {}

  Status run() {
    SHALE_TRY(plain("lru"));
    SHALE_TRY(plain("lru_k"));
    for (const Variant& variant : variants()) SHALE_TRY(hazard(variant));
    SHALE_TRY(hindsight());
    return optimum();
  }

 private:
  using Make = std::function<std::unique_ptr<EvictionPolicy>(std::uint64_t blocks, std::uint64_t seed)>;

  Status rows(std::string_view variant, std::uint32_t seeds, const Make& make) {
    for (const std::uint64_t blocks : options_.blocks) {
      HazardRow row{.trace = trace_.name, .variant = std::string(variant), .blocks = blocks};
      row.lowest = std::numeric_limits<double>::infinity();
      for (std::uint32_t seed = 0; seed < seeds; ++seed) {
        const auto policy = make(blocks, seed);
        PrefixCache cache(blocks, trace_.unique_blocks(), *policy);
        const std::size_t half = trace_.requests.size() / 2;
        const Served first = serve(trace_, 0, half, cache), second = serve(trace_, half, trace_.requests.size(), cache);
        const double whole = Served{first.requested + second.requested, first.reused + second.reused}.hit_ratio();
        row.hit_ratio += whole / seeds;
        row.first_half += first.hit_ratio() / seeds;
        row.second_half += second.hit_ratio() / seeds;
        row.lowest = std::min(row.lowest, whole);
        row.highest = std::max(row.highest, whole);
      }
      SHALE_TRY(on_row_(row));
    }
    return {};
  }

  Status plain(std::string_view policy) {
    return rows(policy, 1, [&](std::uint64_t blocks, std::uint64_t) {
      return std::move(make_eviction_policy(policy, {.capacity_blocks = blocks}).value());
    });
  }

  Status hazard(const Variant& variant) {
    return rows(variant.name, options_.seeds, [&](std::uint64_t blocks, std::uint64_t seed) {
      const std::uint64_t ghosts =
          variant.ghosts_per_block == 0 ? hazard_ghosts(blocks) : variant.ghosts_per_block * blocks;
      return make_hazard(std::make_shared<HazardModel>(variant.without), {.ghosts_max = ghosts, .seed = seed});
    });
  }

  Status hindsight() {
    return rows("hindsight", options_.seeds, [&](std::uint64_t, std::uint64_t seed) {
      const auto model = std::make_shared<HazardModel>();
      const std::uint64_t all = trace_.unique_blocks();
      const auto watcher = make_hazard(model, {.seed = seed, .learning = HazardLearning::kSamples});
      PrefixCache unbounded(std::max<std::uint64_t>(all, 1), all, *watcher);
      serve(trace_, 0, trace_.requests.size(), unbounded);
      for (int i = 0; i < kFitsInHindsight; ++i) model->fit(static_cast<std::uint32_t>(trace_.requests.size()), 1);
      return make_hazard(model, {.ghosts_max = all, .learning = HazardLearning::kNothing});
    });
  }

  Status optimum() {
    const auto uses = prompt_next_uses(trace_);
    return rows("optimum", 1, [&](std::uint64_t, std::uint64_t) { return make_optimum(uses); });
  }

  const Trace& trace_;
  const HazardStudyOptions& options_;
  const std::function<Status(const HazardRow&)>& on_row_;
};

}  // namespace

Status hazard_rows(const Trace& trace, const HazardStudyOptions& options,
                   const std::function<Status(const HazardRow&)>& on_row) {
  return Study(trace, options, on_row).run();
}

}  // namespace shale::bench
