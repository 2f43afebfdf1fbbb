// New extents that are compressed before they lie anywhere, and what is expected of forms that none has yet.
#include <array>
#include <memory>

#include "store/placed_store.h"

namespace shale::testing {
namespace {

using StoreBecomeTest = StorePlacementTest;

// Not exact first and compressed later: the exact bytes are written where a full copy stays, and nowhere else.
TEST_F(StoreBecomeTest, WhatIsSavedIsWrittenInTheFormInWhichItWillLie) {
  const std::uint64_t room_for_one_int8 = 150 << 10;
  {
    const auto store = open(tiers_of(memory_tier(clock_, room_for_one_int8)), with_methods({"int8"}));
    save_chains(*store, 1);
    const std::vector<StoreExtent> extents = store->inspect(chain_number(0));
    ASSERT_EQ(extents.size(), 1u);
    EXPECT_FALSE(extents.front().exact);
    EXPECT_EQ(store->stats().tiers[0].bytes_written, store->stats().tiers[0].bytes);
    EXPECT_EQ(found(*store, 1), kBlocks);
    expect_sound(*store);
  }
  auto slow = disk_tier(folder_.path() / "disk", clock_);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1GB/s,100ms").value(), clock_);
  const auto store = open(tiers_of(memory_tier(clock_, room_for_one_int8), std::move(slow)), with_methods({"int8"}));
  save_chains(*store, 1);
  EXPECT_EQ(store->lookup(chain_number(0), kAny).tier, 0u);
  EXPECT_EQ(load_all(*store, chain_number(0)), kBlocks) << "in full below";
  EXPECT_EQ(store->stats().extents_failed, 0u);
  StoreHints pinned;
  pinned.pin = true;
  save_chains(*store, 2, pinned, 1);
  ASSERT_EQ(store->inspect(chain_number(1)).size(), 1u);
  EXPECT_TRUE(store->inspect(chain_number(1)).front().exact) << "as it was handed over";
  expect_sound(*store);
}

// Layers with a window are stored whole at every keep: compressing a model of few others frees little.
TEST_F(StoreBecomeTest, WhatLayersWithAWindowWillTakeIsExpected) {
  const std::array<std::uint32_t, 3> windows = {8, 0, 8};
  StoreOptions options = with_methods({"knorm"});
  options.model.windows = windows;
  const auto store = open(tiers_of(memory_tier(clock_, kRoomForThree)), options);
  save_chains(*store, 1);
  const Problem problem = store->problem();
  ASSERT_EQ(problem.prefixes.size(), 1u);
  std::uint64_t exact = 0, least = 0;
  for (const Candidate& candidate : problem.prefixes[0].candidates) {
    if (candidate.tier == kDropped) continue;
    if (candidate.method == kFullMethod) exact = candidate.bytes;
    if (candidate.keep == kKeepGrid[0]) least = candidate.bytes;
  }
  EXPECT_GT(least, exact * 2 / 3);
  EXPECT_LT(least, exact * 4 / 5);
}

// Each save holds bytes that its extent is to be made of, and none waits for another to let go of them.
TEST_F(StoreBecomeTest, ManySavesBecomeSomethingElseAtOnce) {
  StoreOptions options = with_methods({"int8"});
  options.staging_bytes = 1 << 10;
  auto slow = disk_tier(folder_.path() / "disk", clock_);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1GB/s,100ms").value(), clock_);
  const auto store = open(tiers_of(memory_tier(clock_, 1200 << 10), std::move(slow)), options);
  std::vector<Kv> kvs;
  for (int c = 0; c < 10; ++c) kvs.emplace_back(chain_number(c));
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 10; ++c) saves.push_back(store->save(chain_number(c), kvs[c].readable()).value());
  for (const auto& save : saves) EXPECT_TRUE(save->wait());
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(found(*store, 10), 10 * kBlocks);
  EXPECT_EQ(store->stats().staged_bytes, 0u);
  EXPECT_GT(store->stats().encoded_bytes, 10 * small_geometry().bytes(kBlocks * kBlockTokens)) << "some in two forms";
  expect_sound(*store);
}

// Saves that wait for room in memory hold all that may be staged, and so do copies on a tier that takes none. Nothing
// here waits for time to pass.
TEST_F(StoreBecomeTest, DemotionsDoNotWaitForSavesThatNeedThem) {
  const VirtualClock clock;
  StoreOptions options = with_methods({"int8"});
  options.threads = 0;
  options.staging_bytes = 256 << 10;
  auto stuck = disk_tier(folder_.path() / "disk", clock);
  stuck.tier = make_throttled_tier(std::move(stuck.tier), parse_throttle("1KB/s,1ms").value(), clock);
  const auto store =
      Store::open(options, tiers_of(memory_tier(clock, 250 << 10), memory_tier(clock, 1300 << 10), std::move(stuck)),
                  clock)
          .value();
  std::vector<Kv> kvs;
  for (int c = 0; c < 10; ++c) kvs.emplace_back(chain_number(c));
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 10; ++c) saves.push_back(store->save(chain_number(c), kvs[c].readable()).value());
  InlineExecutor executor;
  const auto all_done = [&] { return std::ranges::all_of(saves, [](const auto& save) { return save->done(); }); };
  for (int work = 0; work < 20'000 && !all_done(); ++work) store->work(executor, 0);
  EXPECT_TRUE(all_done());
  EXPECT_EQ(found(*store, 10), 10 * kBlocks);
  EXPECT_GT(store->stats().tiers[0].demoted, 0u);
  clock.sleep_until_s(1e9);
  EXPECT_TRUE(store->flush());
  expect_sound(*store);
}

// A form that was asked for, of whose worth nobody knows, is moved where room is short like any other.
TEST_F(StoreBecomeTest, AFormThatNobodyMeasuredIsMovedOnce) {
  const VirtualClock clock;
  StoreOptions options = with_methods({"int8"});
  options.threads = 0;
  options.placement.quality = nullptr;
  const auto store =
      Store::open(options, tiers_of(memory_tier(clock, 250 << 10), memory_tier(clock, 1300 << 10)), clock).value();
  StoreHints hints;
  hints.method = Method::parse("int8").value();
  std::vector<Kv> kvs;
  for (int c = 0; c < 6; ++c) kvs.emplace_back(chain_number(c));
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 6; ++c) saves.push_back(store->save(chain_number(c), kvs[c].readable(), hints).value());
  InlineExecutor executor;
  int works = 0;
  while (works < 20'000 && store->work(executor, 0)) ++works;
  EXPECT_LT(works, 20'000) << "it comes to rest";
  EXPECT_GT(store->stats().tiers[0].demoted, 0u);
  EXPECT_EQ(found(*store, 6), 6 * kBlocks);
  expect_sound(*store);
}

// While a tier takes its time, which only passes where somebody waits, saves hold no more than may be staged, and one
// extent.
TEST_F(StoreBecomeTest, WhatSavesStageIsBounded) {
  const VirtualClock clock;
  StoreOptions options = small_options();
  options.threads = 0;
  const std::uint64_t extent = small_geometry().bytes(kBlocks * kBlockTokens);
  options.staging_bytes = 3 * extent;
  auto stuck = make_throttled_tier(make_memory_tier(kUnlimited, clock), parse_throttle("1MB/s,1ms").value(), clock);
  std::vector<StoreTier> tiers(1);
  tiers[0].tier = std::move(stuck);
  const auto store = Store::open(options, std::move(tiers), clock).value();
  StoreHints hints;
  hints.recompute_s = 1e6;  // worth loading even from there
  std::vector<Kv> kvs;
  for (int c = 0; c < 10; ++c) kvs.emplace_back(chain_number(c));
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 10; ++c) saves.push_back(store->save(chain_number(c), kvs[c].readable(), hints).value());
  InlineExecutor executor;
  for (int work = 0; work < 1000; ++work) store->work(executor, 0);
  EXPECT_LE(store->stats().staged_bytes, 4 * extent);
  EXPECT_GE(std::ranges::count_if(saves, [](const auto& save) { return save->released(); }), 3);
  for (const auto& save : saves) {
    const Status saved = save->wait();
    EXPECT_TRUE(saved) << saved.error().message;
  }
  EXPECT_EQ(found(*store, 10), 10 * kBlocks);
}

// Its exact copy is gone: only another one can become what is best by now.
TEST_F(StoreBecomeTest, WhatIsSavedAgainBecomesWhatIsBestByThen) {
  StoreOptions options = with_methods({"int8", "knorm"});
  std::string best = "knorm";
  options.placement.quality = [&](const Hash128&, const Method& method, double keep) -> std::optional<double> {
    return method.text() == best && (keep == 0.5 || method.scorer.empty()) ? 0.99 : 0.1;
  };
  StoreTier slow = memory_tier(clock_, kUnlimited);  // where an exact copy could lie, too
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1GB/s,100ms").value(), clock_);
  const auto store = open(tiers_of(memory_tier(clock_, 150 << 10), std::move(slow)), options);
  const auto form = [&] {
    const auto extents = store->inspect(chain_number(0));
    return extents.size() == 1 ? extents.front().method.text() : fmt::format("{} extents", extents.size());
  };
  save_chains(*store, 1);
  EXPECT_EQ(form(), "knorm");
  best = "int8";
  store->place_again(store->inspect(chain_number(0)).front().run);
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(form(), "knorm");
  save_chains(*store, 1);
  EXPECT_EQ(form(), "int8");
  save_chains(*store, 1);
  EXPECT_EQ(form(), "2 extents") << "as it should already, and the exact one where there is room";
  EXPECT_EQ(load_all(*store, chain_number(0)), kBlocks);
  expect_sound(*store);
}

// Its place is decided anew once it has arrived where it is being moved to.
TEST_F(StoreBecomeTest, WhatIsSavedAgainWaitsForAMoveOfItsBlocks) {
  const VirtualClock clock;
  StoreOptions options = with_methods({"int8", "knorm"});
  options.threads = 0;
  std::string best = "knorm";
  options.placement.quality = [&](const Hash128&, const Method& method, double keep) -> std::optional<double> {
    return method.text() == best && (keep == 0.5 || method.scorer.empty()) ? 0.99 : 0.1;
  };
  const std::uint64_t room_for_one = 150 << 10;
  StoreTier slow = memory_tier(clock, room_for_one);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1MB/s,1ms").value(), clock);
  const auto store = Store::open(options, tiers_of(memory_tier(clock, room_for_one), std::move(slow)), clock).value();
  InlineExecutor executor;
  const auto work = [&](const auto& until) {
    for (int works = 0; works < 1000 && !until(); ++works) store->work(executor, 0);
    return until();
  };
  const Kv first(chain_number(0)), second(chain_number(1));
  StoreHints worthless, precious;
  worthless.recompute_s = 10;
  precious.recompute_s = 1000;
  ASSERT_TRUE(store->save(chain_number(0), first.readable(), worthless).value()->wait());
  const auto moving = store->save(chain_number(1), second.readable(), precious).value();
  ASSERT_TRUE(work([&] { return moving->released(); }));
  best = "int8";
  const auto again = store->save(chain_number(0), first.readable(), worthless).value();
  EXPECT_FALSE(work([&] { return again->done(); })) << "time stands still, and so does the move";
  EXPECT_TRUE(again->wait());
  EXPECT_TRUE(moving->wait());
  ASSERT_TRUE(store->flush());
  const auto extents = store->inspect(chain_number(0));
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents.front().method.text(), "int8");
  EXPECT_EQ(found(*store, 2), 2 * kBlocks);
  expect_sound(*store);
}

// Not even for what is dearer and comes before anything else is decided.
TEST_F(StoreBecomeTest, WhatIsPinnedKeepsItsPlaceFromTheStart) {
  const VirtualClock clock;
  StoreOptions options = with_methods({});
  options.threads = 0;
  const auto store = Store::open(options, tiers_of(memory_tier(clock, 250 << 10)), clock).value();
  const Kv first(chain_number(0)), second(chain_number(1));
  StoreHints pinned, dearer;
  pinned.recompute_s = 1;
  pinned.pin = true;
  dearer.recompute_s = 1000;
  const auto kept = store->save(chain_number(0), first.readable(), pinned).value();
  const auto refused = store->save(chain_number(1), second.readable(), dearer).value();
  InlineExecutor executor;
  for (int works = 0; works < 1000; ++works) store->work(executor, 1);
  ASSERT_TRUE(kept->done() && refused->done()) << "no time passed";
  EXPECT_TRUE(kept->wait());
  EXPECT_FALSE(refused->wait());
  EXPECT_EQ(store->stats().dropped_extents, 0u);
  EXPECT_EQ(found(*store, 2), kBlocks);
}

// Where what it becomes cannot be written, it lies as it is on the next tier.
TEST_F(StoreBecomeTest, WhatCannotBeCompressedIsSavedAllTheSame) {
  StoreTier full = memory_tier(clock_, 150 << 10);
  full.tier = std::make_unique<FaultyTier>(std::move(full.tier), Faults{.full = after(0)}, clock_);
  const auto store =
      open(tiers_of(std::move(full), disk_tier(folder_.path() / "disk", clock_)), with_methods({"int8"}));
  save_chains(*store, 1);
  EXPECT_EQ(load_all(*store, chain_number(0)), kBlocks);
  EXPECT_EQ(store->stats().extents_failed, 0u);
  expect_sound(*store);
}

}  // namespace
}  // namespace shale::testing
