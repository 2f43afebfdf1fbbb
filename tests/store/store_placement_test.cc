// Which variant lies where: what is given up when a tier is full, what comes back, what outlives the store.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "store/placed_store.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

TEST_F(StorePlacementTest, WhatIsFullCompressesBeforeItDrops) {
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), with_methods({"int8"}));
  save_chains(*store, 5);
  EXPECT_EQ(found(*store, 5), 5 * kBlocks);
  const StoreStats stats = store->stats();
  EXPECT_GE(stats.tiers[0].compressed, 3u);
  EXPECT_EQ(stats.dropped_extents, 0u);
  EXPECT_LE(stats.tiers[0].bytes, kRoomForThree);
  EXPECT_GT(stats.encode_seconds, 0);
  expect_sound(*store);
  for (int c = 0; c < 5; ++c) {
    Kv kv(kBlocks);
    const auto load = store->load(chain_number(c), kv.view(), {.needs = kAny}).value();
    ASSERT_TRUE(load->wait());
    EXPECT_TRUE(load->failures().empty());
  }
  StoreHints dear;
  for (int c = 5; c < 12; ++c) {
    dear.recompute_s = std::pow(10, c);
    save_chains(*store, c + 1, dear, c);
  }
  EXPECT_GT(store->stats().dropped_extents, 0u) << "as int8 there is room for five";
  EXPECT_GE(found(*store, 12), 4 * kBlocks);
  expect_sound(*store);
}

TEST_F(StorePlacementTest, WithoutAMeasuredQualityNothingIsLost) {
  auto options = with_methods({"int8"});
  options.placement.quality = [](const Hash128&, const Method&, double) { return std::optional<double>(); };
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), options);
  save_chains(*store, 6);
  EXPECT_EQ(found(*store, 6), 3 * kBlocks);
  EXPECT_EQ(found(*store, 6, {}), 3 * kBlocks) << "all of it exact";
  EXPECT_EQ(store->stats().dropped_extents, 3u);
  expect_sound(*store);
}

TEST_F(StorePlacementTest, ImportanceTiersAreDeletedStepByStep) {
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), with_methods({"knorm"}));
  save_chains(*store, 6);
  EXPECT_EQ(found(*store, 6), 6 * kBlocks);
  EXPECT_EQ(store->stats().dropped_extents, 0u);
  expect_sound(*store);
  bool cut = false;
  for (int c = 0; c < 6; ++c) {
    Kv kv(kBlocks);
    const auto load = store->load(chain_number(c), kv.view(), {.needs = kAny}).value();
    ASSERT_TRUE(load->wait());
    ASSERT_TRUE(load->failures().empty()) << load->failures()[0].error.message;
    const StoreRun& run = load->runs().at(0);
    cut = cut || run.keep < 1;
    for (const std::uint32_t rows : run.rows) {
      EXPECT_EQ(rows, static_cast<std::uint32_t>(kBlocks * kBlockTokens * run.keep));
    }
  }
  EXPECT_TRUE(cut);
}

TEST_F(StorePlacementTest, WhatWasCompressedComesBackInFullFromTheLowestTier) {
  auto slow = disk_tier(folder_.path() / "disk", clock_);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1GB/s,100ms").value(), clock_);
  const auto store = open(tiers_of(memory_tier(clock_, 430 << 10), std::move(slow)), with_methods({"int8"}));
  save_chains(*store, 3);
  const auto exact_above = [&](int chain) {
    for (const StoreExtent& extent : store->inspect(chain_number(chain))) {
      if (extent.exact && extent.tiers.front() == 0) return true;
    }
    return false;
  };
  EXPECT_FALSE(exact_above(0) && exact_above(1) && exact_above(2));
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(store->lookup(chain_number(c), kAny).tier, 0u) << "compressed, but in memory";
    EXPECT_EQ(load_all(*store, chain_number(c)), kBlocks) << "in full below";
  }
  ASSERT_TRUE(store->flush());
  const int kept = exact_above(0) ? (exact_above(1) ? 2 : 1) : 0;  // a compressed one
  for (int c = 0; c < 3; ++c) {
    if (c == kept) continue;
    EXPECT_GE(store->remove(chain_number(c)), kBlocks) << "in one form or two";
    while (store->remove(chain_number(c)) > 0) continue;
  }
  ASSERT_TRUE(store->flush());
  EXPECT_TRUE(exact_above(kept));
  EXPECT_EQ(store->inspect(chain_number(kept)).size(), 1u) << "the compressed one is gone";
  EXPECT_GT(store->stats().tiers[0].promoted, 0u);
  EXPECT_EQ(load_all(*store, chain_number(kept)), kBlocks);
  expect_sound(*store);
}

// What a leader keeps free is for others, while there are any.
TEST_F(StorePlacementTest, WhoIsAloneOnAFolderFillsIt) {
  const auto disk = [&] { return disk_tier(folder_.path() / "disk", clock_, 616 << 10); };  // for three, barely
  const auto store = open(tiers_of(disk()));
  EXPECT_TRUE(eventually([&] {
    (void)save_all(*store, chain_number(2));
    for (int c = 0; c < 3; ++c) (void)save_all(*store, chain_number(c));
    return store->flush() && found(*store, 3) == 3 * kBlocks;
  }));
  const auto other = open(tiers_of(disk()));
  EXPECT_TRUE(eventually([&] { return found(*store, 3) == 2 * kBlocks; })) << "one is dropped";
  expect_sound(*store);
}

// Given up each time for others that are asked for more often, its uses are kept.
TEST_F(StorePlacementTest, WhatIsAskedForAgainAndAgainGetsIn) {
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)));
  save_chains(*store, 3);
  for (int use = 0; use < 3; ++use) {
    for (int c = 0; c < 3; ++c) store->touch(chain_number(c));
  }
  const auto ask = [&] {
    (void)save_all(*store, chain_number(3));
    ASSERT_TRUE(store->flush());
  };
  for (int asked = 1; asked <= 3; ++asked) {
    ask();
    EXPECT_EQ(store->lookup(chain_number(3)).blocks, 0u) << "asked for " << asked << " times, the others four times";
  }
  for (int asked = 4; asked <= 6; ++asked) ask();
  EXPECT_EQ(store->lookup(chain_number(3)).blocks, kBlocks);
  EXPECT_EQ(found(*store, 4), 3 * kBlocks);
  expect_sound(*store);
}

TEST_F(StorePlacementTest, LoadsThatAreDoneHoldUpNobody) {
  auto slow = disk_tier(folder_.path() / "disk", clock_);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("20MB/s,5ms").value(), clock_);
  const auto store = open(tiers_of(std::move(slow)));
  save_chains(*store, 1);
  std::vector<Kv> kvs;
  std::vector<std::unique_ptr<StoreLoad>> done;
  for (int i = 0; i < 12; ++i) kvs.emplace_back(kBlocks);
  for (Kv& kv : kvs) {
    done.push_back(store->load(chain_number(0), kv.view()).value());
    ASSERT_TRUE(done.back()->wait());
  }
  const double ready_s = store->lookup(chain_number(0)).ready_s;
  done.clear();
  EXPECT_EQ(ready_s, store->lookup(chain_number(0)).ready_s) << "nothing of them was being read";
}

TEST_F(StorePlacementTest, VariantsAndFrequenciesOutliveTheStore) {
  const auto tiers = [&] { return tiers_of(disk_tier(folder_.path() / "disk", clock_, 700 << 10)); };
  const auto options = with_methods({"int8"});
  StoreHints hints;
  hints.run = {7, 9};
  hints.label = "a document";
  std::vector<StoreExtent> before;
  {
    const auto store = open(tiers(), options);
    save_chains(*store, 5, hints);
    for (int use = 0; use < 3; ++use) store->touch(chain_number(4));
    store->for_each_extent([&](const StoreExtent& extent) { before.push_back(extent); });
    expect_sound(*store);
  }
  const auto store = open(tiers(), options);
  ASSERT_TRUE(store->flush());
  std::size_t seen = 0, compressed = 0;
  store->for_each_extent([&](const StoreExtent& extent) {
    const auto same = std::ranges::find(before, extent.name, &StoreExtent::name);
    ASSERT_NE(same, before.end());
    ++seen;
    compressed += extent.exact ? 0 : 1;
    EXPECT_EQ(extent.method, same->method);
    EXPECT_EQ(extent.keep, same->keep);
    EXPECT_EQ(extent.bytes, same->bytes);
    EXPECT_EQ(extent.run, hints.run);
    EXPECT_EQ(extent.label, hints.label);
    EXPECT_NEAR(extent.frequency, same->frequency, 0.1 * same->frequency);
  });
  EXPECT_EQ(seen, before.size());
  EXPECT_GT(compressed, 0u);
  EXPECT_EQ(found(*store, 5), 5 * kBlocks);
  EXPECT_GT(store->inspect(chain_number(4)).at(0).frequency, 3.5);
  expect_sound(*store);
}

TEST_F(StorePlacementTest, OnlyTheLeaderOfAFolderCompresses) {
  const auto tiers = [&] { return tiers_of(disk_tier(folder_.path() / "disk", clock_, 4 << 20)); };
  const auto leader = open(tiers(), with_methods({"int8"})), other = open(tiers(), with_methods({"int8"}));
  save_chains(*other, 24);
  const auto compressed = [](const Store& store) { return store.stats().tiers[0].compressed; };
  const auto settled = [&] { return compressed(*leader) > 0 && found(*other, 24) >= 18 * kBlocks; };
  for (int looks = 0; looks < 400 && !settled(); ++looks) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(found(*other, 24), 18 * kBlocks) << "exactly there is room for eighteen at most";
  EXPECT_GT(compressed(*leader), 0u);
  EXPECT_EQ(compressed(*other), 0u);
}

// What decides in the store is what decides in a simulation, and the same calls decide the same.
TEST_F(StorePlacementTest, ARecordedRunReplaysToTheSamePlacements) {
  const VirtualClock clock;
  auto options = with_methods({"int8", "knorm"});
  options.threads = 0;
  std::vector<PlacementEvent> events;
  options.placement.on_event = [&](const PlacementEvent& event) { events.push_back(event); };
  auto store = Store::open(options, tiers_of(memory_tier(clock, kRoomForThree), memory_tier(clock, 1 << 20)), clock);
  ASSERT_TRUE(store) << store.error().message;
  save_chains(**store, 12);
  for (int c = 0; c < 12; c += 3) (*store)->touch(chain_number(c));
  ASSERT_TRUE((*store)->flush());
  const Problem live = (*store)->problem();
  const auto planner = make_planner("shale").value();
  CountingBackend backend(2);
  PlacementState replayed(*planner, {.move_s_per_byte = StorePlacement().move_s_per_byte}, {{kRoomForThree}, {1 << 20}},
                          backend);
  for (const PlacementEvent& event : events) replayed.apply(event);
  const Problem again = replayed.problem(clock.now_s());
  ASSERT_EQ(again.prefixes.size(), live.prefixes.size());
  for (std::size_t i = 0; i < live.prefixes.size(); ++i) {
    EXPECT_EQ(again.prefixes[i].id, live.prefixes[i].id);
    EXPECT_EQ(again.prefixes[i].current, live.prefixes[i].current);
  }
  EXPECT_GT(backend.moves(), 0u);
  expect_sound(**store);
}

TEST_F(StorePlacementTest, WhatTheOwnersMemoryHoldsGivesWayFirst) {
  const auto store = open_both(kRoomForThree);
  save_chains(*store, 3);
  for (int use = 0; use < 4; ++use) store->touch(chain_number(0));
  EXPECT_EQ(store->in_pool(chain_number(0), kBlocks, PoolNews::kHeld), kBlocks);
  ASSERT_TRUE(save_all(*store, chain_number(3)));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->lookup(chain_number(0)).tier, 1u) << "the most used, but answered by others";
  expect_sound(*store);
}

StoreHints with_attention() {
  StoreHints hints;
  const KvGeometry geometry = small_geometry();
  hints.statistics.layers = geometry.layers;
  hints.statistics.query_heads = hints.statistics.kv_heads = geometry.kv_heads;
  hints.statistics.head_dim = geometry.head_dim;
  hints.statistics.tokens = kBlocks * kBlockTokens;
  for (std::uint32_t i = 0; i < geometry.layers * geometry.kv_heads * hints.statistics.tokens; ++i) {
    hints.statistics.attention_sums.push_back(static_cast<float>(i % 97));
  }
  return hints;
}

// Of a scorer that reads attention, an extent that keeps its ranking can be compressed when attention is gone.
TEST_F(StorePlacementTest, RankingsKeptWithAnExtentLetItBeCompressedLater) {
  for (const bool kept : {false, true}) {
    const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), with_methods({"h2o+int8"}));
    for (int c = 0; c < 5; ++c) {
      StoreHints hints = with_attention();
      if (kept) hints.rankings = {"h2o", "snapkv"};  // what snapkv reads is not given
      const Status saved = save_all(*store, chain_number(c), hints);
      ASSERT_TRUE(saved) << saved.error().message;
      ASSERT_TRUE(store->flush());
    }
    EXPECT_EQ(store->stats().tiers[0].compressed > 0, kept);
    EXPECT_EQ(found(*store, 5) == 5 * kBlocks, kept);
    expect_sound(*store);
  }
}

// It is tried once, and then the extent is as one that never had it.
TEST_F(StorePlacementTest, ARankingThatIsDamagedIsGivenUp) {
  const auto store = open(tiers_of(disk_tier(folder_.path(), clock_, kRoomForThree)), with_methods({"h2o+int8"}));
  StoreHints hints = with_attention();
  hints.rankings = {"h2o"};
  save_chains(*store, 2, hints);
  std::map<std::filesystem::path, std::filesystem::path> rankings;  // the last part of each
  for (const auto& part : blob_files(folder_.path(), false)) rankings[part.parent_path()] = part;
  ASSERT_EQ(rankings.size(), 2u);
  for (const auto& [object, ranking] : rankings) std::fstream(ranking, std::ios::in | std::ios::out) << "damaged";
  for (int c = 2; c < 6; ++c) (void)save_all(*store, chain_number(c), hints);
  ASSERT_TRUE(store->flush());
  const std::uint64_t damaged = store->stats().damaged_rankings;
  EXPECT_GT(damaged, 0u);
  EXPECT_LE(damaged, 2u);
  EXPECT_EQ(store->stats().damaged_chunks, 0u);
  std::uint64_t exact = 0;
  for (const PlacedPrefix& prefix : store->problem().prefixes) {
    if (prefix.candidates[prefix.current].method != 0) continue;
    ++exact;
    EXPECT_TRUE(std::ranges::all_of(prefix.candidates, [](const Candidate& to) { return to.method == 0; }));
  }
  EXPECT_EQ(exact, damaged) << "all others are compressed";
  for (int c = 0; c < 2; ++c) {
    EXPECT_EQ(load_all(*store, chain_number(c)), store->lookup(chain_number(c)).blocks) << "what is kept is sound";
  }
  expect_sound(*store);
}

TEST_F(StorePlacementTest, WhatIsPinnedStaysExact) {
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), with_methods({"int8"}));
  StoreHints pinned;
  pinned.pin = true;
  save_chains(*store, 1, pinned);
  save_chains(*store, 4, {}, 1);
  EXPECT_EQ(load_all(*store, chain_number(0)), kBlocks);
  EXPECT_EQ(found(*store, 4), 4 * kBlocks);
  EXPECT_EQ(store->unpin(chain_number(0)), kBlocks);
  expect_sound(*store);
}

TEST_F(StorePlacementTest, BaselinesFollowTheirOwnOrder) {
  for (const char* planner : {"lru", "lfu"}) {
    StoreOptions options = small_options();
    options.placement.planner = planner;
    const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), options);
    save_chains(*store, 3);
    for (int use = 0; use < 2; ++use) store->touch(chain_number(0));
    store->touch(chain_number(2));
    ASSERT_TRUE(save_all(*store, chain_number(3)));
    ASSERT_TRUE(store->flush());
    EXPECT_EQ(store->lookup(chain_number(1)).blocks, 0u) << planner;
    EXPECT_EQ(found(*store, 4, {}), 3 * kBlocks);
    expect_sound(*store);
  }
  StoreOptions options = small_options();
  options.placement.planner = "prefill";
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  const Kv kv(chain_number(0));
  EXPECT_EQ(code_of(store->save(chain_number(0), kv.readable())), ErrorCode::kFull) << "it keeps nothing";
  EXPECT_TRUE(store->idle()) << "nothing is encoded to be refused";
  EXPECT_EQ(store->lookup(chain_number(0)).blocks, 0u);
}

TEST_F(StorePlacementTest, RefusesPlannersAndMethodsThatThereAreNot) {
  StoreOptions options = small_options();
  options.placement.planner = "nobody";
  EXPECT_EQ(code_of(Store::open(options, tiers_of(memory_tier(clock_)), clock_)), ErrorCode::kInvalidArgument);
  options = with_methods({"full"});
  EXPECT_EQ(code_of(Store::open(options, tiers_of(memory_tier(clock_)), clock_)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale::testing
