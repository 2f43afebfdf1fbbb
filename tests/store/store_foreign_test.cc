// Extents that are not what somebody takes them for: their bytes are nobody else's, and what others read of them stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "extents/extent_io.h"
#include "store/store_core.h"
#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

// An index that says something else of an extent than the extent's manifest. Names of blocks are hints in it, and
// whoever shares the folder may write one.
class ForgedIndexTest : public StoreTest {
 protected:
  StoreTier disk() const { return disk_tier(folder_.path(), clock_); }

  // Saves the keys' blocks as one extent of the unnamed tenant, and closes the store. Then the index says that these
  // are `others`, of that tenant, and the manifest lies where it is looked for then.
  void forge(std::span<const BlockKey> keys, std::span<const BlockKey> others, std::string_view tenant = {}) {
    std::vector<StoreExtent> saved;
    {
      const auto store = open(tiers_of(disk()));
      ASSERT_TRUE(save_all(*store, keys));
      ASSERT_TRUE(store->flush());
      saved = store->inspect(keys);
    }
    ASSERT_EQ(saved.size(), 1u);
    const StoreOptions options = small_options();
    IndexRecord record;
    record.type = IndexRecord::Type::kStored;
    record.realm = {realm_of(options, tenant), std::string(tenant)};
    record.facts.name = saved[0].name;
    record.facts.bytes = saved[0].bytes;
    name_chunks(others, record.realm.hash, options.chunk_tokens / kBlockTokens, record.facts);
    const StoreTier tier = disk();
    const std::uint64_t tag = chunk_tag(keys.front(), realm_of(options, {}));
    const auto manifest = tier.tier->read(manifest_blob(tag, record.facts.name))->take();
    ASSERT_TRUE(manifest) << manifest.error().message;
    ASSERT_TRUE(tier.tier->remove(manifest_blob(tag, record.facts.name)));
    ASSERT_TRUE(tier.tier->write(manifest_blob(record.facts.tags.front(), record.facts.name), *manifest)->wait());
    std::filesystem::remove_all(folder_.path() / "store");
    ASSERT_TRUE(IndexFolder::write_snapshot_file(folder_.path(), [&](const IndexFolder::Visit& add) { add(record); }));
  }

  // Whether such blocks are found, and are missed when they are read: not a byte of them comes, then or later.
  void expect_miss(std::span<const BlockKey> keys, std::string_view tenant = {}) {
    const auto store = open(tiers_of(disk()));
    const auto found = [&] { return store->lookup(keys, {}, tenant).blocks; };
    ASSERT_EQ(found(), keys.size()) << "the index says so";
    Kv kv(keys.size());
    StoreLoadOptions options;
    options.tenant = tenant;
    const auto load = store->load(keys, kv.view(), options).value();
    EXPECT_EQ(code_of(load->wait()), ErrorCode::kNotFound);
    EXPECT_TRUE(kv.untouched());
    EXPECT_EQ(store->stats().damaged_chunks, 0u);
    EXPECT_EQ(found(), 0u) << "and it is known from then on";
    expect_sound(*store);
  }
};

TEST_F(ForgedIndexTest, AnExtentOfOtherBlocksIsAMiss) {
  const std::vector<std::int32_t> saved = {1, 2, 3, 4}, others = {1, 20, 30, 40};
  forge(chain_of(saved), chain_of(others));
  expect_miss(chain_of(others));
}

TEST_F(ForgedIndexTest, AnExtentOfFewerBlocksIsAMiss) {
  forge(chain_of(1, 4), chain_of(1, 8));
  expect_miss(chain_of(1, 8));
}

TEST_F(ForgedIndexTest, AnExtentOfAnotherTenantIsAMiss) {
  forge(chain_of(1, 4), chain_of(1, 4), "other");
  expect_miss(chain_of(1, 4), "other");
}

// A program that makes keys differently takes what others saved for another context's. These find it all the same.
class ForeignTokensTest : public StoreTest, public ::testing::WithParamInterface<bool> {};
TEST_P(ForeignTokensTest, WhatOneTakesForForeignStaysForOthers) {
  const auto open_one = [&] {
    const auto folder = folder_.path() / "tier";
    return open(tiers_of(GetParam() ? shared_tier(folder, clock_) : disk_tier(folder, clock_)));
  };
  const auto files = [&] {
    auto all = blob_files(folder_.path() / "tier", false);
    std::ranges::copy(blob_files(folder_.path() / "tier", true), std::back_inserter(all));
    return all;
  };
  const auto keys = chain_of(1, 8);
  std::vector<std::int32_t> tokens(8 * kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  ASSERT_TRUE(save_all(*open_one(), keys, {.tokens = tokens}));
  const auto saved = files();
  ASSERT_FALSE(saved.empty());

  const auto stranger = open_one();
  ASSERT_TRUE(eventually_beside_others([&] { return stranger->lookup(keys).blocks == 8; }));
  std::vector<std::int32_t> its_own = tokens;
  its_own[9] = -1;
  Kv kv(8);
  EXPECT_EQ(code_of(stranger->load(keys, kv.view(), {.tokens = its_own}).value()->wait()), ErrorCode::kMismatch);
  EXPECT_TRUE(kv.untouched());
  ASSERT_TRUE(stranger->flush());
  EXPECT_EQ(stranger->lookup(keys).blocks, 0u);

  EXPECT_EQ(files(), saved);
  const auto another = open_one();
  EXPECT_TRUE(eventually_beside_others([&] { return another->lookup(keys).blocks == 8; }));
  EXPECT_EQ(load_all(*another, keys, {.tokens = tokens}), 8u);
}
INSTANTIATE_TEST_SUITE_P(Tiers, ForeignTokensTest, ::testing::Values(false, true),
                         [](const auto& tier) { return tier.param ? "shared" : "disk"; });

}  // namespace
}  // namespace shale::testing
