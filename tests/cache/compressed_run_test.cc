// What compressing in memory gives is what the store gives back, bit for bit.
#include "cache/compressed_run.h"

#include <gtest/gtest.h>

#include "paging/page_tokens.h"
#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

void expect_same_pages(const Sequence& a, const Sequence& b) {
  const PageShape& shape = a.pool().shape();
  ASSERT_EQ(a.length(), b.length());
  for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
    const PageSlots one = a.table(i / shape.kv_heads, i % shape.kv_heads).pages;
    const PageSlots other = b.table(i / shape.kv_heads, i % shape.kv_heads).pages;
    ASSERT_EQ(one.size(), other.size()) << "head " << i;
    for (std::size_t p = 0; p < one.size(); ++p) {
      ASSERT_EQ(one[p].count, other[p].count);
      const PageView left = a.pool().host_view().page(one[p].page), right = b.pool().host_view().page(other[p].page);
      for (std::uint32_t t = 0; t < one[p].count; ++t) {
        for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
          ASSERT_EQ(left.keys[c * shape.block_size + t], right.keys[c * shape.block_size + t]);
          ASSERT_EQ(left.values[t * shape.head_dim + c], right.values[t * shape.head_dim + c]);
        }
      }
    }
  }
}

class CompressedRunTest : public CacheTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(CompressedRunTest, IsWhatTheStoreKeeps) {
  CacheOptions options;
  options.chunk_tokens = 32;  // so that the run is two extents
  open(64 << 20, kUnlimited, options);
  const Method method = Method::parse(GetParam()).value();
  const double keep = method.scorer.empty() ? 1 : 0.5;
  const Tokens tokens = tokens_of(31, 33 * 16 + 5);
  Sequence exact_pages(*pool_);
  compute(tokens, static_cast<std::uint32_t>(tokens.size()), exact_pages);
  const NewRun run{.tokens = tokens};
  const auto compressed = cache_->compress(run, method, exact_pages, executor_);
  ASSERT_TRUE(compressed) << compressed.error().message;
  EXPECT_EQ(compressed->extents.size(), 2u);
  EXPECT_EQ(compressed->tokens, 33u * 16);
  if (!method.is_full()) {
    EXPECT_LT(compressed->bytes_for(keep), 0.6 * 33 * static_cast<double>(kShape.block_bytes()));
  }
  std::uint64_t bytes = 0;
  for (const auto& [manifest, parts] : compressed->extents) {
    for (const std::uint32_t blob : manifest.blobs_for(keep)) bytes += parts[blob].size();
    if (!method.scorer.empty()) bytes += TierMap::bytes_of(kShape.pages_per_block(), manifest.tokens);
  }
  EXPECT_EQ(compressed->bytes_for(keep), bytes) << "what lies at rest, and says of a token whether it does";
  Sequence at_once(*pool_);
  ASSERT_TRUE(cache_->decompress(*compressed, keep, at_once, executor_));
  EXPECT_EQ(at_once.lossy(), !method.is_full());
  ASSERT_TRUE(at_once.check_integrity());

  store(tokens, 0, method, keep);
  drain();
  open(64 << 20, kUnlimited, options);
  Sequence loaded(*pool_);
  EXPECT_EQ(fetch(asked(tokens), loaded, {.method = method, .keep = keep}), 33u * 16);
  expect_same_pages(at_once, loaded);
}

INSTANTIATE_TEST_SUITE_P(Methods, CompressedRunTest,
                         ::testing::Values("full", "int8", "kivi4", "knorm", "keydiff+int8"), [](const auto& instance) {
                           std::string name = instance.param;
                           std::ranges::replace(name, '+', '_');
                           return name;
                         });

TEST_F(CacheTest, ARunCompressedBehindAPrefixSharesIt) {
  open();
  const Tokens tokens = tokens_of(32, 160);
  Sequence exact_pages(*pool_);
  compute(tokens, 160, exact_pages);
  const NewRun run{.tokens = tokens, .first = 64};
  const auto compressed = cache_->compress(run, Method::parse("knorm+int8").value(), exact_pages, executor_);
  ASSERT_TRUE(compressed);
  Sequence into(*pool_);
  into.adopt_prefix(exact_pages.blocks(64), 64);
  ASSERT_TRUE(cache_->decompress(*compressed, 0.25, into, executor_));
  EXPECT_EQ(into.length(), 160u);
  EXPECT_EQ(into.table(2, 1).tokens, 64u + 24);
  EXPECT_EQ(into.blocks(64), exact_pages.blocks(64));
  ASSERT_TRUE(into.check_integrity());
}

// Keys and values of one head's tokens, whatever the element of its pages.
std::vector<std::vector<float>> rows_of(const Sequence& sequence, std::uint32_t layer, std::uint32_t head) {
  const PageShape& shape = sequence.pool().shape();
  std::vector<std::vector<float>> rows;
  std::vector<Half> memory(2 * shape.key_elements());
  for (const PageSlot slot : sequence.table(layer, head).pages) {
    const PageView page = as_halves(shape, sequence.pool().host_view().bytes(slot.page), slot.count, memory);
    for (std::uint32_t t = 0; t < slot.count; ++t) {
      std::vector<float>& row = rows.emplace_back();
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) row.push_back(to_float(page.keys[c * shape.block_size + t]));
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) row.push_back(to_float(page.values[t * shape.head_dim + c]));
    }
  }
  return rows;
}

// A pool of int8 keeps no lossy form at rest, and makes one in memory all the same.
TEST_F(CacheTest, PagesOfInt8AreCompressedByWayOfHalves) {
  const PageShape shape = kShape.with(PageElement::kInt8);
  const auto pool = PagePool::create(shape, 40 * shape.block_bytes()).value();
  std::vector<StoreTier> tiers(1);
  tiers[0].tier = make_memory_tier(64 << 20, clock_);
  const auto cache =
      Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool, std::move(tiers), nullptr, clock_).value();
  Sequence pages(*pool);
  ASSERT_TRUE(pages.append(64));
  // Keys that grow from token to token, of which knorm keeps the first: tokens differ by more than an int8's step.
  for (std::uint32_t token = 0; token < 64; ++token) {
    for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
      std::vector<float> keys(shape.head_dim), values(shape.head_dim);
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
        keys[c] = static_cast<float>(token + 4) / 64 * (c % 2 == 0 ? 1.0F : -0.5F);
        values[c] = static_cast<float>(i + 1) / 8 - static_cast<float>(token * c % 17) / 32;
      }
      const auto place = pages.appended(i / shape.kv_heads, i % shape.kv_heads, token, 64);
      write_tokens(shape, pool->host_view().writable_bytes(place.page), place.slot, 1,
                   {keys.data(), values.data(), shape.head_dim});
    }
  }
  const NewRun run{.tokens = tokens_of(33, 64)};
  const auto compressed = cache->compress(run, Method::parse("knorm").value(), pages, executor_);
  ASSERT_TRUE(compressed) << compressed.error().message;
  Sequence into(*pool);
  ASSERT_TRUE(cache->decompress(*compressed, 0.5, into, executor_));
  for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
    const auto saved = rows_of(pages, i / shape.kv_heads, i % shape.kv_heads);
    auto kept = rows_of(into, i / shape.kv_heads, i % shape.kv_heads);
    ASSERT_EQ(kept.size(), 32u);
    std::ranges::sort(kept, {}, [](const auto& row) { return row[0]; });
    for (std::size_t token = 0; token < kept.size(); ++token) {
      for (std::size_t c = 0; c < kept[token].size(); ++c) {
        ASSERT_NEAR(kept[token][c], saved[token][c], 1.0 / 127) << "token " << token << ", channel " << c;
      }
    }
  }
}

}  // namespace
}  // namespace shale
