// A live cache's placement, replayed from the calls that it made.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

// By tie-breaking id: tier, method, keep and bytes of what is placed.
using Placements = std::map<PrefixId, std::tuple<std::uint32_t, std::uint32_t, double, std::uint64_t>>;

Placements placements(const Problem& problem) {
  Placements placed;
  for (const PlacedPrefix& prefix : problem.prefixes) {
    const Candidate& at = prefix.candidates[prefix.current];
    if (at.tier != kDropped) placed[prefix.id] = {at.tier, at.method, at.keep, at.bytes};
  }
  return placed;
}

class PlacementReplay : public CacheTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ~PlacementReplay() override { cache_.reset(); }  // before its clock

  void open_on_virtual_clock() {
    std::vector<StoreTier> tiers(2);
    tiers[0].tier = make_memory_tier(3 * run_bytes_, time_, "near");
    tiers[1].tier = make_memory_tier(7 * run_bytes_, time_, "far");
    CacheOptions options;
    options.planner = GetParam();
    options.methods = {"knorm", "int8"};
    options.frequency_half_life_s = 60;
    options.on_placement = [this](const PlacementEvent& event) { events_.push_back(event); };
    cache_ = Cache::open(options, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers),
                         MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value(), time_)
                 .value();
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10.0);
  }

  // What lies on the tiers: of each group of variants of the same blocks the fastest, by blocks' names.
  std::size_t groups_stored() {
    std::map<std::pair<Hash128, std::uint32_t>, std::uint32_t> groups;
    cache_->store().for_each_extent(
        [&](const StoreExtent& extent) { groups[{extent.run, extent.first_block}] = extent.tiers.front(); });
    return groups.size();
  }

  const std::uint64_t run_bytes_ = 160 * kShape.token_bytes();
  VirtualClock time_;
  std::vector<PlacementEvent> events_;
};

TEST_P(PlacementReplay, ARecordedRunReplaysToTheSamePlacements) {
  open_on_virtual_clock();
  std::vector<TierRoom> rooms;
  for (const Tier* tier : cache_->tiers()) rooms.push_back({tier->capacity_bytes()});
  const auto planner = make_planner(GetParam()).value();
  CountingBackend backend(rooms.size());
  PlacementState replayed(*planner, {.half_life_s = 60, .move_s_per_byte = StorePlacement().move_s_per_byte}, rooms,
                          backend);
  std::size_t applied = 0, compared = 0, lossy = 0;

  std::mt19937 random(3);
  std::vector<Hash128> runs;
  for (int round = 0; round < 120; ++round) {
    time_.sleep_until_s(time_.now_s() + 1 + static_cast<double>(random() % 30));
    const Tokens tokens = tokens_of(static_cast<int>(random() % 14), 150);
    const auto kind = random() % 8;
    if (kind < 3) {
      runs.push_back(store(tokens));
    } else if (kind == 3 && !runs.empty()) {
      const Hash128 run = runs[random() % runs.size()];
      for (const double keep : {0.25, 0.5}) {
        ASSERT_TRUE(cache_->metadata_store()->record_quality({.key = run,
                                                              .method = {.scorer = "knorm", .quantizer = "none"},
                                                              .keep = keep,
                                                              .quality = 0.9 + 0.1 * keep,
                                                              .kl = 0,
                                                              .questions = 4}));
      }
    } else if (kind == 4 && !runs.empty()) {
      cache_->store().remove_run(runs[random() % runs.size()]);
    } else if (kind == 5) {
      Sequence computed(*pool_);
      compute(tokens, 150, computed);
      cache_->insert_prefix(tokens, computed);
    } else {
      if (kind == 6) {
        const auto rooms_of = static_cast<std::uint32_t>(random() % 2);
        ASSERT_TRUE(cache_->evict_until_free(pool_->shape().pages_for(150) * 38 * rooms_of));
      }
      Sequence sequence(*pool_);
      fetch(asked(tokens), sequence);
      if (!sequence.lossy()) expect_exact(tokens, sequence);
    }
    drain();
    for (; applied < events_.size(); ++applied) replayed.apply(events_[applied]);
    ASSERT_TRUE(replayed.check_integrity());
    const Placements live = placements(cache_->store().problem());
    EXPECT_EQ(placements(replayed.problem(time_.now_s())), live) << "round " << round;
    EXPECT_EQ(groups_stored(), live.size()) << "round " << round;
    for (const auto& [id, placed] : live) lossy += std::get<1>(placed) != kFullMethod;
    compared += live.size();
  }
  EXPECT_GT(compared, 300u);
  EXPECT_GT(backend.moves(), 10u);
  if (std::string_view(GetParam()) == "shale") {
    EXPECT_GT(lossy, 20u);
  }
}

INSTANTIATE_TEST_SUITE_P(Planners, PlacementReplay, ::testing::Values("shale", "lru"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace shale
