#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "shale/cache.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr KvGeometry kGeometry{.layers = 3, .kv_heads = 2, .head_dim = 32};
constexpr std::size_t kHeads = kGeometry.layers * kGeometry.kv_heads;

std::vector<std::int32_t> some_tokens(std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 50000);
  return tokens;
}

// KV of a token sequence, [heads][tokens][head_dim]; a token's rows depend on its position alone.
struct Kv {
  std::size_t tokens;
  std::vector<std::uint16_t> keys, values;

  explicit Kv(std::size_t count) : tokens(count), keys(kHeads * count * kGeometry.head_dim), values(keys.size()) {}
  static Kv made(std::size_t count) {
    Kv kv(count);
    for (std::size_t head = 0; head < kHeads; ++head) {
      for (std::size_t t = 0; t < count; ++t) {
        std::mt19937 random(static_cast<std::uint32_t>(head * 10000 + t));
        for (std::size_t c = 0; c < kGeometry.head_dim; ++c) {
          const std::size_t at = (head * count + t) * kGeometry.head_dim + c;
          kv.keys[at] = static_cast<std::uint16_t>(0x3000 + random() % 0x0c00);  // finite, 0.125 to 1
          kv.values[at] = static_cast<std::uint16_t>(0x3000 + random() % 0x0c00);
        }
      }
    }
    return kv;
  }
  // Whether the first `count` tokens of every head agree bit for bit.
  bool same_prefix(const Kv& other, std::size_t count) const {
    const auto same = [&](const auto& a, const auto& b) {
      for (std::size_t head = 0; head < kHeads; ++head) {
        const auto first = a.begin() + static_cast<std::ptrdiff_t>(head * tokens * kGeometry.head_dim);
        const auto second = b.begin() + static_cast<std::ptrdiff_t>(head * other.tokens * kGeometry.head_dim);
        if (!std::equal(first, first + static_cast<std::ptrdiff_t>(count * kGeometry.head_dim), second)) return false;
      }
      return true;
    };
    return same(keys, other.keys) && same(values, other.values);
  }
};

class KvCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("kv_cache_") + test->name());
    fs::remove_all(folder_);
    options_ = {.model = "test",
                .geometry = kGeometry,
                .memory_bytes = 0,
                .folder = folder_ / "disk",
                .disk_bytes = 64 << 20,
                .staging_bytes = 16 << 20};
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<KvCache> open() {
    auto cache = KvCache::open(options_);
    EXPECT_TRUE(cache) << cache.error().message;
    return std::move(*cache);
  }

  fs::path folder_;
  KvCacheOptions options_;
};

TEST_F(KvCacheTest, FetchesBitIdenticalKvFromEveryTierAlsoAfterReopening) {
  const auto tokens = some_tokens(1, 137);  // not a whole number of pages
  const Kv kv = Kv::made(tokens.size());
  auto prompt = tokens;
  prompt.push_back(5);
  for (const char* tier : {"memory", "disk", "remote"}) {
    options_.memory_bytes = tier == std::string("memory") ? 16 << 20 : 0;
    options_.folder = tier == std::string("disk") ? folder_ / "disk" : fs::path();
    options_.shared_folder = tier == std::string("remote") ? folder_ / "shared" : fs::path();
    auto cache = open();
    KvStoreOptions labelled;
    labelled.label = "a test";
    ASSERT_TRUE(cache->store(tokens, kv.keys, kv.values, labelled));
    if (tier != std::string("memory")) {
      cache.reset();
      cache = open();
    }
    EXPECT_EQ(cache->lookup(prompt), tokens.size());
    Kv found(prompt.size());
    const auto hit = cache->fetch(prompt, found.keys, found.values);
    ASSERT_TRUE(hit) << hit.error().message;
    EXPECT_EQ(hit->tokens, tokens.size());
    EXPECT_FALSE(hit->lossy);
    EXPECT_EQ(hit->rows, std::vector<std::uint32_t>(kHeads, static_cast<std::uint32_t>(tokens.size())));
    ASSERT_EQ(hit->sources.size(), 1u);
    EXPECT_EQ(hit->sources[0].where, tier);
    EXPECT_EQ(hit->sources[0].as.method, "full");
    EXPECT_TRUE(kv.same_prefix(found, tokens.size()));
  }
}

TEST_F(KvCacheTest, ASequenceThatContinuesAnotherAsksOnlyForTheRest) {
  const auto tokens = some_tokens(2, 150);
  const Kv kv = Kv::made(tokens.size());
  const auto cache = open();
  const std::span head(tokens.data(), 70);
  std::uint32_t asked_from = 1000;
  const KvSource source = [&](const KvBlock<std::uint16_t>& block) {
    asked_from = std::min(asked_from, block.first);
    const std::size_t at =
        ((block.layer * kGeometry.kv_heads + block.kv_head) * tokens.size() + block.first) * kGeometry.head_dim;
    std::copy_n(kv.keys.begin() + static_cast<std::ptrdiff_t>(at), block.count * kGeometry.head_dim, block.keys);
    std::copy_n(kv.values.begin() + static_cast<std::ptrdiff_t>(at), block.count * kGeometry.head_dim, block.values);
  };
  ASSERT_TRUE(cache->store(head, source));
  EXPECT_EQ(asked_from, 0u);
  asked_from = 1000;
  ASSERT_TRUE(cache->store(tokens, source));
  EXPECT_EQ(asked_from, 70u);
  asked_from = 1000;
  ASSERT_TRUE(cache->store(tokens, source));
  EXPECT_EQ(asked_from, 1000u) << "what is known is not asked for again";

  Kv found(tokens.size());
  const auto hit = cache->fetch(tokens, found.keys, found.values);
  ASSERT_TRUE(hit) << hit.error().message;
  EXPECT_EQ(hit->tokens, tokens.size());
  EXPECT_EQ(hit->sources.size(), 2u);
  EXPECT_TRUE(kv.same_prefix(found, tokens.size()));
}

TEST_F(KvCacheTest, APromptThatBranchesOffUsesTheSharedTokens) {
  const auto tokens = some_tokens(3, 100);
  const Kv kv = Kv::made(tokens.size());
  const auto cache = open();
  ASSERT_TRUE(cache->store(tokens, kv.keys, kv.values));
  auto branch = tokens;
  for (std::size_t i = 45; i < branch.size(); ++i) branch[i] += 1;
  Kv found(branch.size());
  const auto hit = cache->fetch(branch, found.keys, found.values);
  ASSERT_TRUE(hit) << hit.error().message;
  EXPECT_EQ(hit->tokens, 45u);
  EXPECT_TRUE(kv.same_prefix(found, 45));
}

TEST_F(KvCacheTest, CompressedAsAskedAndStillExactWhenAskedSo) {
  const auto tokens = some_tokens(4, 400);
  const Kv kv = Kv::made(tokens.size());
  const auto cache = open();
  const KvConfiguration lossy{.method = "keydiff+int8", .keep = 0.25};
  ASSERT_TRUE(cache->store(tokens, kv.keys, kv.values, {.as = lossy}));
  std::vector<std::uint32_t> seen(kHeads, 0);
  const auto hit = cache->fetch(
      tokens,
      [&](const KvBlock<const std::uint16_t>& block) {
        seen[block.layer * kGeometry.kv_heads + block.kv_head] += block.count;
      },
      lossy);
  ASSERT_TRUE(hit) << hit.error().message;
  EXPECT_EQ(hit->tokens, 400u);
  EXPECT_TRUE(hit->lossy);
  EXPECT_EQ(hit->rows, std::vector<std::uint32_t>(kHeads, 100));
  EXPECT_EQ(seen, hit->rows);
  EXPECT_EQ(hit->sources.at(0).as.method, "keydiff+int8");
  EXPECT_EQ(hit->sources.at(0).as.keep, 0.25);

  Kv found(tokens.size());
  const auto exact = cache->fetch(tokens, found.keys, found.values);
  ASSERT_TRUE(exact) << exact.error().message;
  EXPECT_FALSE(exact->lossy);
  EXPECT_EQ(exact->tokens, 400u) << "the uncompressed copy undoes the loss";
  EXPECT_TRUE(kv.same_prefix(found, tokens.size()));
}

TEST_F(KvCacheTest, OtherModelsAndGeometriesMiss) {
  const auto tokens = some_tokens(5, 64);
  const Kv kv = Kv::made(tokens.size());
  ASSERT_TRUE(open()->store(tokens, kv.keys, kv.values));
  options_.model = "other";
  EXPECT_EQ(open()->lookup(tokens), 0u);
  options_.model = "test";
  options_.geometry.page_tokens = 32;
  EXPECT_EQ(open()->lookup(tokens), 0u);
  options_.geometry.page_tokens = 16;
  EXPECT_EQ(open()->lookup(tokens), 64u) << "what others did not understand is still there";
}

TEST_F(KvCacheTest, DamagedBytesAreACountedMiss) {
  const auto tokens = some_tokens(6, 64);
  const Kv kv = Kv::made(tokens.size());
  ASSERT_TRUE(open()->store(tokens, kv.keys, kv.values));
  for (const auto& file : fs::recursive_directory_iterator(options_.folder)) {
    if (!file.is_regular_file() || file.file_size() < 4096) continue;
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (std::uintmax_t at = 1000; at < file.file_size(); at += 4096) {
      stream.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(stream.get() ^ 0x55);
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(byte);
    }
  }
  const auto cache = open();
  Kv found(tokens.size());
  const auto hit = cache->fetch(tokens, found.keys, found.values);
  ASSERT_TRUE(hit) << hit.error().message;
  EXPECT_EQ(hit->tokens, 0u);
  EXPECT_GE(cache->stats().corrupt_objects, 1u);
  EXPECT_EQ(cache->lookup(tokens), 0u);
}

TEST_F(KvCacheTest, WrongInputIsAnErrorThatSaysWhat) {
  const auto refuses = [](KvCacheOptions options, std::string_view word) {
    const auto cache = KvCache::open(options);
    ASSERT_FALSE(cache);
    EXPECT_EQ(cache.error().code, KvErrorCode::kInvalidArgument);
    EXPECT_NE(cache.error().message.find(word), std::string::npos) << cache.error().message;
  };
  auto broken = options_;
  broken.model.clear();
  refuses(broken, "name");
  broken = options_;
  broken.geometry.layers = 0;
  refuses(broken, "geometry");
  broken = options_;
  broken.geometry.page_tokens = 17;
  refuses(broken, "17");
  broken = options_;
  broken.folder.clear();
  refuses(broken, "no tier");

  const auto cache = open();
  const auto tokens = some_tokens(7, 32);
  const Kv kv = Kv::made(tokens.size());
  const Kv other = Kv::made(31);
  const auto code = [](const KvResult<void>& result) { return result ? KvErrorCode::kInternal : result.error().code; };
  EXPECT_EQ(code(cache->store(tokens, other.keys, kv.values)), KvErrorCode::kInvalidArgument);
  EXPECT_EQ(code(cache->store(tokens, kv.keys, kv.values, {.as = {"nonsense"}})), KvErrorCode::kInvalidArgument);
  EXPECT_EQ(code(cache->store(tokens, kv.keys, kv.values, {.as = {"snapkv"}})), KvErrorCode::kInvalidArgument);
  EXPECT_EQ(code(cache->store(tokens, kv.keys, kv.values, {.as = {"keydiff", 0.3}})), KvErrorCode::kInvalidArgument);
  const auto too_long = some_tokens(8, 100000);
  EXPECT_EQ(code(cache->store(too_long, [](const KvBlock<std::uint16_t>&) {})), KvErrorCode::kFull);
}

}  // namespace
}  // namespace shale
