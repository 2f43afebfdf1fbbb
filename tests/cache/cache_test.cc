#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

TEST_F(CacheTest, AStoredEntryComesBackBitForBitFromMemoryAndAfterRestartFromDisk) {
  open();
  const Tokens tokens = tokens_of(1, 150);
  store(tokens);
  drain();
  for (const char* where : {"memory", "disk"}) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    ASSERT_EQ(retrieval.tokens(), 150u);
    EXPECT_FALSE(retrieval.lossy());
    ASSERT_EQ(retrieval.sources().size(), 1u);
    EXPECT_EQ(retrieval.sources()[0].where, where);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    expect_exact(tokens, sequence);
    retrieval = Retrieval();
    sequence.clear();
    open();
  }
}

TEST_F(CacheTest, ExactPagesInThePoolComeFirst) {
  open();
  const Tokens tokens = tokens_of(2, 100);
  Sequence computed(*pool_);
  compute(tokens, 100, computed);
  cache_->remember(tokens, computed);
  Sequence sequence(*pool_);
  const Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  EXPECT_EQ(retrieval.tokens(), 100u);
  EXPECT_EQ(retrieval.sources()[0].where, "pool");
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, LeavesTheLastTokenToCompute) {
  open();
  const Tokens tokens = tokens_of(3, 64);
  store(tokens);
  drain();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(tokens, {}, sequence);
  EXPECT_EQ(retrieval.tokens(), 63u);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, AHitMayEndInsideAnEntryAndFollowAChain) {
  open();
  const Tokens conversation = tokens_of(4, 130);
  const EntryKey document = store({conversation.begin(), conversation.begin() + 77});
  store(conversation, document, 77);
  drain();
  open();  // the pool knows nothing
  Tokens other = conversation;
  other[110] = 1234;
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(other, {}, sequence);
  EXPECT_EQ(retrieval.tokens(), 110u);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  expect_exact(conversation, sequence);
}

TEST_F(CacheTest, TokensComputedWhileAnEntryLoadsStayWhereTheyAre) {
  open();
  const Tokens tokens = tokens_of(9, 117);  // its last page has room for what follows
  store({tokens.begin(), tokens.begin() + 85});
  drain();
  open();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(tokens, {}, sequence);
  ASSERT_EQ(retrieval.tokens(), 85u);
  compute(tokens, 117, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, ANamedMethodIsLossyAndNeverServesAnExactRequest) {
  open();
  const Tokens tokens = tokens_of(5, 200);
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  store(tokens, {}, 0, Configuration{.method = method, .keep = 0.5, .tier = 1});
  drain();
  open();
  {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {.method = method, .keep = 0.5}, sequence);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_EQ(retrieval.tokens(), 200u);
    EXPECT_TRUE(retrieval.lossy());
    EXPECT_EQ(sequence.table(0, 0).tokens, 100u);
    EXPECT_EQ(sequence.length(), 200u);
  }
  {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), exact(true), sequence);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_FALSE(retrieval.lossy());
    EXPECT_EQ(retrieval.tokens(), 200u);  // the base
    expect_exact(tokens, sequence);
  }
  // Nobody measured what knorm+int8 does to answers: without being named it is not used.
  Sequence sequence(*pool_);
  EXPECT_FALSE(cache_->retrieve(asked(tokens), {}, sequence).lossy());
}

// Another document behind the same template head must not be computed on top of a lossy copy of that head.
TEST_F(CacheTest, AHitThatEndsInsideAnEntryIsExact) {
  open();
  const Tokens tokens = tokens_of(6, 200);
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  const EntryKey key = store(tokens, {}, 0, Configuration{.method = method, .keep = 0.5, .tier = 1});
  drain();
  ASSERT_TRUE(cache_->catalogue()->record_quality(
      {.key = key, .method = method, .keep = 0.5, .agreement = 1, .kl = 0, .questions = 1}));
  Tokens other = tokens;
  for (std::size_t i = 40; i < other.size(); ++i) other[i] += 1;
  for (const Demand& demand : {Demand{}, Demand{.method = method, .keep = 0.5}}) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(other), demand, sequence);
    EXPECT_FALSE(retrieval.lossy());
    EXPECT_EQ(retrieval.tokens(), 40u);  // of the base
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    expect_exact(tokens, sequence);
  }
  Sequence sequence(*pool_);
  EXPECT_TRUE(cache_->retrieve(asked(tokens), {.method = method, .keep = 0.5}, sequence).lossy()) << "the whole entry";
}

TEST_F(CacheTest, DamagedBytesAreACountedMissAndNeverServed) {
  open();
  const Tokens tokens = tokens_of(6, 120);
  store(tokens);
  drain();
  cache_.reset();
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path() / "disk")) {
    if (!file.is_regular_file() || file.file_size() < 4096) continue;
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(1000);
    const char byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(1000);
    bytes.put(byte);
  }
  open();
  std::uint64_t retries = 0;
  while (true) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    if (retrieval.ensure_all(executor_)) {
      EXPECT_EQ(retrieval.tokens(), 0u);
      break;
    }
    ASSERT_LT(++retries, 5u);
    cache_->report_failure(std::move(retrieval));
  }
  EXPECT_GE(cache_->stats().corrupt_objects, 1u);
  store(tokens);
  drain();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(retrieval.tokens(), 120u);
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, SharingATemplatesHeadWithADocumentIsNoUseOfIt) {
  open();
  const Tokens tokens = tokens_of(6, 200);
  const EntryKey key = store(tokens);
  drain();
  Tokens other = tokens;
  for (std::size_t i = 40; i < other.size(); ++i) other[i] += 1;
  Tokens most = tokens;
  for (std::size_t i = 100; i < most.size(); ++i) most[i] += 1;
  for (const auto& [prompt, accesses] : {std::pair{other, 1u}, {tokens, 2u}, {most, 3u}}) {
    Sequence sequence(*pool_);
    cache_->retrieve(asked(prompt), {}, sequence);
    EXPECT_EQ(cache_->index().find(key)->frequency.count(), accesses);
  }
}

TEST_F(CacheTest, MoreEntriesThanMemoryHoldsSpreadOverTheTiers) {
  const std::uint64_t entry_bytes = 160 * kShape.token_bytes();
  open(3 * entry_bytes, kUnlimited);
  for (int i = 0; i < 8; ++i) store(tokens_of(100 + i, 150));
  drain();
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 3 * entry_bytes);
  for (int i = 0; i < 8; ++i) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens_of(100 + i, 150)), {}, sequence);
    EXPECT_EQ(retrieval.tokens(), 150u) << i;
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    expect_exact(tokens_of(100 + i, 150), sequence);
  }
}

TEST_F(CacheTest, AProfiledEntryIsPressedWhereRoomIsShort) {
  const std::uint64_t entry_bytes = 160 * kShape.token_bytes();
  CacheOptions options;
  options.methods = {"knorm"};
  open(2 * entry_bytes, kUnlimited, options);
  std::vector<EntryKey> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(store(tokens_of(200 + i, 150)));
  drain();
  for (const EntryKey& key : keys) {
    for (const double keep : {0.1, 0.25, 0.5, 0.75, 1.0}) {
      ASSERT_TRUE(cache_->catalogue()->record_quality({.key = key,
                                                       .method = {.scorer = "knorm", .quantizer = "none"},
                                                       .keep = keep,
                                                       .agreement = 0.9999,
                                                       .kl = 0,
                                                       .questions = 2}));
    }
  }
  for (int round = 0; round < 8; ++round) {
    cache_->plan();
    drain();
  }
  std::size_t in_memory = 0;
  for (const EntryKey& key : keys) {
    for (const StoredObject& object : cache_->index().find(key)->objects) in_memory += object.tier == 0;
  }
  EXPECT_EQ(in_memory, 4u) << "pressed copies of all four fit where two whole ones do";
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 2 * entry_bytes);
}

TEST_F(CacheTest, AnObjectIsReadAtTheBitsAskedForAndFoundAtTheBitsThatAreLeft) {
  open();
  const Method all{"knorm", "layered"}, base{"knorm", "layered2"};
  const Tokens tokens = tokens_of(450, 300);
  const EntryKey key = store(tokens, {}, 0, Configuration{all, 1, 1});
  drain();
  const auto source = [&](const Method& method, double keep) {
    Demand demand;
    demand.method = method;
    demand.keep = keep;
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), demand, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    return retrieval.sources().empty() ? SourceUsed{} : retrieval.sources().front();
  };
  const SourceUsed fine = source(all, 0.5), coarse = source(base, 0.5);
  EXPECT_EQ(fine.method, all);
  EXPECT_EQ(coarse.method, base);
  EXPECT_LT(coarse.bytes, fine.bytes * 3 / 4);

  const auto stored = [&] {
    const std::vector<StoredObject>& objects = cache_->index().find(key)->objects;
    return *std::ranges::find_if(objects, [](const StoredObject& object) { return !object.method().is_full(); });
  };
  EXPECT_EQ(stored().serves(all, 1.0), Bits::kAll);
  EXPECT_EQ(stored().serves(base, 1.0), Bits::kBase);
  EXPECT_EQ(stored().serves({"knorm", "kivi2"}, 0.5), std::nullopt);
  const std::shared_ptr<const Manifest> manifest = stored().manifest;
  ASSERT_TRUE(remove_chunks(*cache_->tiers()[1], *manifest, 3, Bits::kBase));
  open();
  EXPECT_EQ(stored().method(), base);
  EXPECT_EQ(stored().manifest->method, all);
  EXPECT_EQ(stored().keep(), 0.5);
  EXPECT_EQ(stored().serves(base, 0.75), std::nullopt);
  EXPECT_EQ(stored().bytes(), manifest->bytes_for(0.5, Bits::kBase));
  EXPECT_EQ(source(base, 0.5).bytes, coarse.bytes);
  EXPECT_EQ(source(all, 0.5).method, Method::full()) << "the bits are gone; the whole copy serves";
}

// Three pressed copies fit, but none of them beside two whole ones: the old copy makes way, and planning ends.
TEST_F(CacheTest, APressedCopyTakesThePlaceOfTheOldOneWhereBothDoNotFit) {
  const std::uint64_t entry_bytes = 160 * kShape.token_bytes();
  CacheOptions options;
  options.methods = {"int8"};
  open(2 * entry_bytes + entry_bytes / 5, kUnlimited, options);
  std::vector<EntryKey> keys;
  for (int i = 0; i < 3; ++i) {
    keys.push_back(store(tokens_of(300 + i, 150)));
    ASSERT_TRUE(cache_->catalogue()->record_quality({.key = keys.back(),
                                                     .method = {.scorer = "", .quantizer = "int8"},
                                                     .keep = 1,
                                                     .agreement = 0.99999,
                                                     .kl = 0,
                                                     .questions = 2}));
    drain();
  }
  for (int round = 0; round < 4; ++round) {
    cache_->plan();
    drain();
  }
  for (const EntryKey& key : keys) {
    EXPECT_TRUE(std::ranges::any_of(cache_->index().find(key)->objects,
                                    [](const StoredObject& object) { return object.tier == 0; }));
  }
  EXPECT_EQ(cache_->stats().refused_full, 0u);
}

TEST_F(CacheTest, AFullDiskCostsTheEntryNotTheAnswer) {
  open(0, 2 * 160 * kShape.token_bytes());
  for (int i = 0; i < 6; ++i) {
    store(tokens_of(300 + i, 150));
    drain();
  }
  EXPECT_LE(cache_->tiers()[1]->used_bytes(), cache_->tiers()[1]->capacity_bytes());
  std::size_t found = 0;
  for (int i = 0; i < 6; ++i) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens_of(300 + i, 150)), {}, sequence);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    found += retrieval.tokens() == 150;
  }
  EXPECT_GE(found, 1u);
}

TEST_F(CacheTest, RemovedEntriesLeaveNothingBehind) {
  open();
  const EntryKey key = store(tokens_of(7, 90));
  EXPECT_EQ(cache_->remove(key).error().code, ErrorCode::kBusy);
  drain();
  ASSERT_TRUE(cache_->remove(key));
  EXPECT_EQ(cache_->remove(key).error().code, ErrorCode::kNotFound);
  for (const auto& tier : cache_->tiers()) EXPECT_TRUE(tier->list()->empty());
}

TEST_F(CacheTest, AnotherModelsObjectsAreNotFound) {
  open();
  store(tokens_of(8, 90));
  drain();
  cache_.reset();
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(make_disk_tier({.folder = folder_.path() / "disk"}, clock_).value());
  cache_ = Cache::open({}, {.hash = {8, 8}, .model = "other"}, *pool_, std::move(tiers), nullptr, clock_).value();
  Sequence sequence(*pool_);
  EXPECT_EQ(cache_->retrieve(asked(tokens_of(8, 90)), {}, sequence).tokens(), 0u);
  EXPECT_FALSE(cache_->tiers()[0]->list()->empty());
}

TEST_F(CacheTest, RandomTrafficKeepsEveryBookInOrder) {
  std::mt19937 random(11);
  const std::uint64_t entry_bytes = 160 * kShape.token_bytes();
  open(3 * entry_bytes, 9 * entry_bytes);
  std::vector<EntryKey> keys;
  for (int round = 0; round < 150; ++round) {
    const Tokens tokens = tokens_of(static_cast<int>(random() % 14), 120 + random() % 2 * 30);
    switch (random() % 8) {
      case 0:
      case 1:
        keys.push_back(store(tokens));
        break;
      case 2: {
        if (keys.empty()) break;
        const double keep = std::array{0.25, 0.5, 1.0}[random() % 3];
        static_cast<void>(cache_->catalogue()->record_quality({.key = keys[random() % keys.size()],
                                                               .method = {.scorer = "knorm", .quantizer = "none"},
                                                               .keep = keep,
                                                               .agreement = 0.5 + 0.5 * keep,
                                                               .kl = 0,
                                                               .questions = 1}));
        break;
      }
      case 3:
        cache_->plan();
        break;
      case 4:
        if (!keys.empty()) static_cast<void>(cache_->remove(keys[random() % keys.size()]));
        break;
      case 5:
        if (random() % 4 == 0) {
          drain();
          open(3 * entry_bytes, 9 * entry_bytes);
        }
        break;
      default: {
        Sequence sequence(*pool_);
        Retrieval retrieval = cache_->retrieve(asked(tokens), exact(random() % 2 == 0), sequence);
        ASSERT_TRUE(retrieval.ensure_all(executor_));
        if (!retrieval.lossy()) expect_exact(tokens, sequence);
      }
    }
    for (int i = 0; i < 5; ++i) cache_->work(executor_);
    if (round % 10 == 0) drain();
    ASSERT_TRUE(pool_->check_integrity());
  }
  drain();
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 3 * entry_bytes);
}

}  // namespace
}  // namespace shale
