// A live cache's placement, replayed from the calls that it made.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

// By tie-breaking id: tier, method and bytes of what is placed.
using Placements = std::map<EntryId, std::tuple<std::uint32_t, std::string, std::uint64_t>>;

class PlacementReplay : public CacheTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ~PlacementReplay() override { cache_.reset(); }  // before its clock

  void open_on_virtual_clock() {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(make_memory_tier(3 * entry_bytes_, time_, "near"));
    tiers.push_back(make_memory_tier(7 * entry_bytes_, time_, "far"));
    CacheOptions options;
    options.planner = GetParam();
    options.methods = {"knorm", "int8"};
    options.plan_interval_s = 0;
    options.frequency_half_life_s = 60;
    options.on_placement = [this](const PlacementEvent& event) { events_.push_back(event); };
    cache_ = Cache::open(options, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers),
                         Catalogue::open(folder_.path() / "catalogue.sqlite", {7, 7}).value(), time_)
                 .value();
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10.0);
  }

  // What lies on the tiers, of every entry at its best: bases beside it are not placed.
  Placements stored() {
    Placements placements;
    for (const Entry* entry : cache_->index().all()) {
      const auto placed = std::ranges::min_element(entry->objects, {}, &StoredObject::tier);
      placements[entry->key.low] = {placed->tier, placed->method().text(), placed->bytes()};
    }
    return placements;
  }

  const std::uint64_t entry_bytes_ = 160 * kShape.token_bytes();
  VirtualClock time_;
  std::vector<PlacementEvent> events_;
};

TEST_P(PlacementReplay, ARecordedRunReplaysToTheSamePlacements) {
  open_on_virtual_clock();
  std::vector<TierRoom> rooms;
  for (const auto& tier : cache_->tiers()) rooms.push_back({tier->capacity_bytes()});
  const auto planner = make_planner(GetParam()).value();
  CountingBackend backend(rooms.size());
  PlacementState replayed(*planner, {.half_life_s = 60}, rooms, backend);
  std::map<PlacementSlot, EntryId> ids;
  std::size_t applied = 0, compared = 0, lossy = 0, corrected = 0;

  std::mt19937 random(3);
  std::vector<EntryKey> keys;
  for (int round = 0; round < 120; ++round) {
    time_.sleep_until_s(time_.now_s() + 1 + static_cast<double>(random() % 30));
    const Tokens tokens = tokens_of(static_cast<int>(random() % 14), 150);
    const auto kind = random() % 8;
    if (kind < 3) {
      keys.push_back(store(tokens));
    } else if (kind == 3 && !keys.empty()) {
      const EntryKey& key = keys[random() % keys.size()];
      for (const double keep : {0.25, 0.5}) {
        ASSERT_TRUE(cache_->catalogue()->record_quality({.key = key,
                                                         .method = {.scorer = "knorm", .quantizer = "none"},
                                                         .keep = keep,
                                                         .agreement = 0.9 + 0.1 * keep,
                                                         .kl = 0,
                                                         .questions = 4}));
      }
    } else if (kind == 4 && !keys.empty()) {
      static_cast<void>(cache_->remove(keys[random() % keys.size()]));
    } else if (kind == 5) {
      Sequence computed(*pool_);
      compute(tokens, 150, computed);
      cache_->remember(tokens, computed);
    } else {
      if (kind == 6) {
        const auto rooms_of = static_cast<std::uint32_t>(random() % 2);
        ASSERT_TRUE(cache_->make_room(pool_->shape().pages_for(150) * 38 * rooms_of));
      }
      Sequence sequence(*pool_);
      ASSERT_TRUE(cache_->retrieve(asked(tokens), {}, sequence).ensure_all(executor_));
    }
    drain();
    cache_->plan();
    drain();
    cache_->problem();  // has the placement told which moves could not be made
    for (; applied < events_.size(); ++applied) {
      const PlacementEvent& event = events_[applied];
      if (event.kind == PlacementEvent::Kind::kAdd) {
        const PlacementSlot slot = replayed.add(event.entry, event.value);
        ids[slot] = event.entry.id;
      } else {
        if (event.kind == PlacementEvent::Kind::kRemove) ids.erase(event.slot);
        if (event.kind == PlacementEvent::Kind::kUpdate) {
          corrected += event.entry.candidates[event.entry.current].tier != replayed.placed(event.slot).tier;
        }
        replayed.apply(event);
      }
    }
    ASSERT_TRUE(replayed.check_integrity());
    const Placements live = stored();
    std::size_t placed = 0;
    for (const auto& [slot, id] : ids) {
      const Candidate& candidate = replayed.placed(slot);
      if (candidate.tier == kDropped) {
        EXPECT_FALSE(live.contains(id));
        continue;
      }
      ++placed;
      ASSERT_TRUE(live.contains(id)) << "round " << round;
      const auto& [tier, method, bytes] = live.at(id);
      EXPECT_EQ(tier, candidate.tier) << "round " << round;
      EXPECT_EQ(method, cache_->candidates().methods()[candidate.method].text()) << "round " << round;
      EXPECT_EQ(bytes, candidate.bytes) << "round " << round;
      lossy += candidate.method != kFullMethod;
      ++compared;
    }
    ASSERT_EQ(placed, live.size()) << "round " << round;
  }
  EXPECT_GT(compared, 300u);
  EXPECT_GT(backend.moves(), 10u);
  // Of whole caches between two full tiers, not every two can change places.
  EXPECT_LT(corrected, backend.moves());
  fmt::print("{} placements compared, {} moves, {} that could not be made\n", compared, backend.moves(), corrected);
  if (std::string_view(GetParam()) == "shale") {
    EXPECT_GT(lossy, 30u);
  }
}

INSTANTIATE_TEST_SUITE_P(Planners, PlacementReplay, ::testing::Values("shale", "lru"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace shale
