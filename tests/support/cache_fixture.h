// A cache over real tiers, whose KV is a function of the token prefix: what a model would do.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include "cache/cache.h"
#include "support/temporary_folder.h"
#include "tiers/tiers.h"

namespace shale::testing {

using Tokens = std::vector<std::int32_t>;

class CacheTest : public ::testing::Test {
 protected:
  static constexpr PageShape kShape{.layers = 3, .kv_heads = 2, .head_dim = 32, .block_size = 16};

  CacheTest() { pool_ = PagePool::create(kShape, 400 * kShape.block_bytes()).value(); }

  StoreTier disk_tier(std::uint64_t bytes = kUnlimited) {
    StoreTier tier;
    tier.folder = folder_.path() / "disk";
    DiskTierOptions disk{.folder = tier.folder, .capacity_bytes = bytes};
    disk.several_writers = true;
    tier.tier = make_disk_tier(disk, clock_).value();
    return tier;
  }

  std::unique_ptr<Cache> open_another(std::uint64_t memory_bytes, std::uint64_t disk_bytes, CacheOptions options) {
    return open_over(memory_bytes, disk_tier(disk_bytes), std::move(options));
  }

  std::unique_ptr<Cache> open_over(std::uint64_t memory_bytes, StoreTier disk, CacheOptions options) {
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_memory_tier(memory_bytes, clock_);
    tiers.push_back(std::move(disk));
    auto metadata_store = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
    auto cache = Cache::open(std::move(options), {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers),
                             std::move(metadata_store), clock_)
                     .value();
    // Computing is slow enough here that loading always pays.
    for (int i = 0; i < 3; ++i) cache->note_prefill(100, 0, 10.0);
    return cache;
  }

  void open(std::uint64_t memory_bytes = 64 << 20, std::uint64_t disk_bytes = kUnlimited, CacheOptions options = {}) {
    cache_.reset();
    cache_ = open_another(memory_bytes, disk_bytes, std::move(options));
  }

  // Over a disk from which loading takes 20 ms at least.
  void open_over_slow_disk(std::uint64_t memory_bytes, CacheOptions options = {}) {
    cache_.reset();
    StoreTier disk = disk_tier();
    disk.tier = make_throttled_tier(std::move(disk.tier), parse_throttle("1GB/s,20ms").value(), clock_);
    cache_ = open_over(memory_bytes, std::move(disk), std::move(options));
  }

  static Tokens tokens_of(int seed, std::size_t count) {
    std::mt19937 random(static_cast<unsigned>(seed));
    Tokens tokens(count);
    for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 1000);
    return tokens;
  }

  static float element(const Tokens& tokens, std::uint32_t position, std::uint32_t plane, std::uint32_t channel) {
    return static_cast<float>((tokens[position] * 31 + static_cast<int>(position) * 7 + static_cast<int>(plane) * 13 +
                               static_cast<int>(channel) * 3) %
                              997) /
               64 -
           7;
  }

  // Appends tokens [sequence.length(), tokens_end) as a model would compute them.
  void compute(const Tokens& tokens, std::size_t tokens_end, Sequence& sequence) {
    const auto end = static_cast<std::uint32_t>(tokens_end), count = end - sequence.length();
    ASSERT_TRUE(sequence.append(count));
    for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
      for (std::uint32_t head = 0; head < kShape.kv_heads; ++head) {
        for (std::uint32_t i = 0; i < count; ++i) {
          const auto place = sequence.appended(layer, head, i, count);
          const MutablePageView page = pool_->host_view().writable_page(place.page);
          const std::uint32_t plane = 2 * kShape.page_index(layer, head);
          for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
            page.keys[c * kShape.block_size + place.slot] = to_half(element(tokens, end - count + i, plane, c));
            page.values[place.slot * kShape.head_dim + c] = to_half(element(tokens, end - count + i, plane + 1, c));
          }
        }
      }
    }
  }

  // Every token of an exact sequence is what computing it gives.
  void expect_exact(const Tokens& tokens, const Sequence& sequence) {
    for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
      for (std::uint32_t head = 0; head < kShape.kv_heads; ++head) {
        const HeadTable table = sequence.table(layer, head);
        ASSERT_EQ(table.tokens, sequence.length());
        const std::uint32_t plane = 2 * kShape.page_index(layer, head);
        std::uint32_t position = 0;
        for (const PageSlot slot : table.pages) {
          const PageView page = pool_->host_view().page(slot.page);
          for (std::uint32_t t = 0; t < slot.count; ++t, ++position) {
            for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
              ASSERT_EQ(page.keys[c * kShape.block_size + t], to_half(element(tokens, position, plane, c)));
              ASSERT_EQ(page.values[t * kShape.head_dim + c], to_half(element(tokens, position, plane + 1, c)));
            }
          }
        }
      }
    }
  }

  // The run of tokens [first, …), and, where a method is given, that form of it too.
  Hash128 store(const Tokens& tokens, std::uint32_t first = 0, std::optional<Method> method = std::nullopt,
                double keep = 1) {
    Sequence sequence(*pool_);
    compute(tokens, static_cast<std::uint32_t>(tokens.size()), sequence);
    NewRun run{.tokens = tokens, .first = first, .recompute_s = 5, .label = "a document", .method = std::move(method)};
    run.keep = keep;
    return cache_->store(std::move(run), sequence);
  }

  // What lies in the store of a chain's runs.
  std::vector<StoreExtent> stored(const Tokens& tokens) { return cache_->store().inspect(cache_->keys_of(tokens)); }

  // A byte in the middle of whatever is large on the disk.
  void damage_middle_of_blobs() {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path() / "disk")) {
      if (!file.is_regular_file() || file.file_size() < 16384) continue;
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto middle = static_cast<std::streamoff>(file.file_size() / 2);
      bytes.seekg(middle);
      const char byte = static_cast<char>(bytes.get() ^ 1);
      bytes.seekp(middle);
      bytes.put(byte);
    }
  }

  // Loads what there is of the prompt; how many tokens.
  std::uint32_t fetch(const Tokens& prompt, Sequence& sequence, const RequestPolicy& policy = {}) {
    Retrieval retrieval = cache_->retrieve(prompt, policy, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_EQ(retrieval.tokens(), sequence.length());
    return retrieval.tokens();
  }

  void drain() {
    cache_->drain(executor_);
    const Status status = cache_->check_integrity();
    ASSERT_TRUE(status) << status.error().message;
  }

  // The tokens followed by a question.
  static Tokens asked(Tokens tokens) {
    tokens.insert(tokens.end(), {5001, 5002, 5003});
    return tokens;
  }

  static RequestPolicy exact(bool demanded) {
    RequestPolicy policy;
    policy.exact = demanded;
    return policy;
  }

  TemporaryFolder folder_;
  RealClock clock_;
  InlineExecutor executor_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace shale::testing
