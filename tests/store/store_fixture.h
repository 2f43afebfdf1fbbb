// A store with tiers as a test wants them, and KV whose bytes follow from the keys of its blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/half.h"
#include "store/store.h"
#include "support/faulty_tier.h"
#include "support/temporary_folder.h"
#include "tiers/tiers.h"

namespace shale::testing {

inline constexpr std::uint32_t kBlockTokens = 4;
inline constexpr std::uint32_t kChunkTokens = 16;  // 4 blocks

inline KvGeometry small_geometry() {
  KvGeometry geometry;
  geometry.layers = 3;
  geometry.kv_heads = 2;
  geometry.head_dim = 32;
  geometry.block_tokens = kBlockTokens;
  return geometry;
}

inline StoreOptions small_options() {
  StoreOptions options;
  options.name_space = "test model";
  options.geometry = small_geometry();
  options.chunk_tokens = kChunkTokens;
  return options;
}

// Keys of a chain of blocks, each of which is given by one number.
inline std::vector<BlockKey> chain_of(std::span<const std::int32_t> blocks) {
  std::vector<std::int32_t> tokens;
  for (const std::int32_t block : blocks) tokens.insert(tokens.end(), kBlockTokens, block);
  return block_keys("seed", tokens, kBlockTokens);
}
// Blocks first, first + 1, …
inline std::vector<BlockKey> chain_of(std::int32_t first, std::uint32_t blocks) {
  std::vector<std::int32_t> numbers(blocks);
  std::iota(numbers.begin(), numbers.end(), first);
  return chain_of(numbers);
}

// An engine's memory for a run of blocks.
class Kv {
 public:
  explicit Kv(std::size_t blocks)
      : blocks_(static_cast<std::uint32_t>(blocks)), bytes_(small_geometry().bytes(blocks_ * kBlockTokens)) {}
  explicit Kv(std::span<const BlockKey> keys) : Kv(keys.size()) {
    for (std::uint32_t b = 0; b < blocks_; ++b) {
      for (std::uint32_t layer = 0; layer < small_geometry().layers; ++layer) {
        const auto values = values_of(keys[b], layer);
        std::memcpy(block(layer, b), values.data(), values.size() * sizeof(Half));
      }
    }
  }

  MutableKvView view() {
    return packed_view<std::byte>(small_geometry(), KvPacking::kTokensHeads, bytes_.data(), blocks_ * kBlockTokens);
  }
  KvView readable() const {
    return packed_view<const std::byte>(small_geometry(), KvPacking::kTokensHeads, bytes_.data(),
                                        blocks_ * kBlockTokens);
  }
  // Whether the block has the bytes that this key stands for, in layers [0, layers).
  bool holds(std::uint32_t b, const BlockKey& key, std::uint32_t layers = small_geometry().layers) const {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const auto values = values_of(key, layer);
      if (std::memcmp(block(layer, b), values.data(), values.size() * sizeof(Half)) != 0) return false;
    }
    return true;
  }
  bool untouched() const {
    return std::ranges::all_of(bytes_, [](std::byte byte) { return byte == std::byte{0}; });
  }
  std::uint32_t blocks() const { return blocks_; }

 private:
  static std::vector<Half> values_of(const BlockKey& key, std::uint32_t layer) {
    std::vector<Half> values(small_geometry().block_bytes() / sizeof(Half));
    std::uint64_t state = hash64(key, layer);
    for (Half& value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = to_half(static_cast<float>(static_cast<std::int32_t>(state >> 40) - (1 << 23)) / (1 << 23));
    }
    return values;
  }
  std::byte* block(std::uint32_t layer, std::uint32_t b) {
    return bytes_.data() + (std::size_t{layer} * blocks_ + b) * small_geometry().block_bytes();
  }
  const std::byte* block(std::uint32_t layer, std::uint32_t b) const { return const_cast<Kv*>(this)->block(layer, b); }

  std::uint32_t blocks_;
  std::vector<std::byte> bytes_;
};

// Tiers: shared by several stores where they name a folder.
inline StoreTier memory_tier(const Clock& clock, std::uint64_t capacity = kUnlimited) {
  return {.tier = make_memory_tier(capacity, clock)};
}
inline StoreTier disk_tier(const std::filesystem::path& folder, const Clock& clock,
                           std::uint64_t capacity = kUnlimited) {
  DiskTierOptions options;
  options.folder = folder;
  options.capacity_bytes = capacity;
  options.several_writers = true;
  return {.tier = make_disk_tier(options, clock).value(), .folder = folder};
}
inline StoreTier shared_tier(const std::filesystem::path& folder, const Clock& clock,
                             std::uint64_t capacity = kUnlimited) {
  return {.tier = make_directory_tier(folder, capacity, clock).value(), .shared = true};
}
// The files of its manifests, or of its parts.
inline std::vector<std::filesystem::path> blob_files(const std::filesystem::path& tier_folder, bool manifests) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tier_folder / "objects")) {
    const bool is_manifest = entry.path().filename().string().front() != '0';
    if (entry.is_regular_file() && is_manifest == manifests) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}
template <class... Tiers>
std::vector<StoreTier> tiers_of(Tiers&&... tiers) {
  std::vector<StoreTier> all;
  (all.push_back(std::forward<Tiers>(tiers)), ...);
  return all;
}

inline Status save_all(Store& store, std::span<const BlockKey> keys, StoreHints hints = {}) {
  const Kv kv(keys);
  const std::uint32_t block = hints.first_block;
  const Kv part(keys.subspan(block));
  SHALE_ASSIGN(const auto save, store.save(keys, part.readable(), std::move(hints)));
  return save->wait();
}

// How many leading blocks come back as they were saved; those that are not are failures of the test.
inline std::uint32_t load_all(Store& store, std::span<const BlockKey> keys, StoreLoadOptions options = {}) {
  Kv kv(keys.size());
  auto load = store.load(keys, kv.view(), options);
  EXPECT_TRUE(load.has_value()) << load.error().message;
  if (!load) return 0;
  (void)(*load)->wait();
  std::vector<bool> failed(kv.blocks());
  for (const StoreFailure& failure : (*load)->failures()) {
    for (std::uint32_t b = 0; b < failure.blocks; ++b) failed[failure.first_block + b] = true;
  }
  std::uint32_t leading = 0;
  bool unbroken = true;
  for (std::uint32_t b = 0; b < (*load)->blocks(); ++b) {
    if (failed[b]) {
      unbroken = false;
      continue;
    }
    EXPECT_TRUE(kv.holds(b, keys[b])) << "block " << b << " is wrong and nobody said so";
    leading += unbroken ? 1 : 0;
  }
  return leading;
}

inline ErrorCode code_of(const auto& result) { return result ? ErrorCode::kInternal : result.error().code; }

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(std::vector<StoreTier> tiers, StoreOptions options = small_options()) {
    auto store = Store::open(std::move(options), std::move(tiers), clock_);
    EXPECT_TRUE(store.has_value()) << store.error().message;
    return std::move(*store);
  }
  std::unique_ptr<Store> open_both(std::uint64_t memory = kUnlimited, std::uint64_t disk = kUnlimited) {
    return open(tiers_of(memory_tier(clock_, memory), disk_tier(folder_.path() / "disk", clock_, disk)));
  }
  static void expect_sound(Store& store) {
    const Status sound = store.check_integrity();
    EXPECT_TRUE(sound) << sound.error().message;
  }

  TemporaryFolder folder_;
  RealClock clock_;
};

}  // namespace shale::testing
