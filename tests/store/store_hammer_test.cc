// One store in the hands of eight threads, and one folder in the hands of three processes, through the C interface:
// whatever is loaded is what its keys stand for.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <shale/store.hpp>
#include <string>
#include <thread>

#include "core/hash.h"
#include "support/temporary_folder.h"

namespace shale::testing {
namespace {

constexpr std::uint32_t kBlock = 4, kLayers = 2, kHeads = 2, kDim = 16;
constexpr std::size_t kRow = kBlock * kHeads * kDim;  // elements of one layer's keys of a block
constexpr kv::Geometry kGeometry = {
    .element = SHALE_F16, .layers = kLayers, .kv_heads = kHeads, .head_dim = kDim, .block_tokens = kBlock};

std::string tiers_on(const std::filesystem::path& folder) {
  return "memory:?size=200KiB,file://" + folder.string() + "?size=2MiB";
}

kv::Result<kv::Store> open_store(const std::string& tiers) {
  return kv::Store::open(
      {.name_space = "hammered", .geometry = kGeometry, .tiers = tiers.c_str(), .chunk_tokens = 16, .threads = 2});
}

// An engine's blocks [layers][blocks][tokens][heads][channels], whose contents follow from their keys.
class Blocks {
 public:
  explicit Blocks(std::size_t blocks) : blocks_(blocks), keys_(kLayers * blocks * kRow), values_(keys_.size()) {}

  kv::View view() {
    const auto array = [this](std::vector<std::uint16_t>& elements) {
      return shale_array{.base = elements.data(),
                         .layers = nullptr,
                         .layer_stride = static_cast<std::int64_t>(blocks_ * kRow * 2),
                         .block_stride = kRow * 2,
                         .token_stride = kHeads * kDim * 2,
                         .head_stride = kDim * 2,
                         .channel_stride = 2};
    };
    return {.keys = array(keys_),
            .values = array(values_),
            .block_table = nullptr,
            .physical_blocks = static_cast<std::uint32_t>(blocks_),
            .tokens = static_cast<std::uint32_t>(blocks_ * kBlock)};
  }
  void fill(std::span<const kv::Key> keys) {
    for (std::size_t b = 0; b < blocks_; ++b) {
      for_elements(b, keys[b], [](std::uint16_t& element, std::uint16_t value) {
        element = value;
        return true;
      });
    }
  }
  bool holds(std::size_t b, const kv::Key& key) {
    return for_elements(b, key, [](std::uint16_t& element, std::uint16_t value) { return element == value; });
  }

 private:
  template <class Visit>
  bool for_elements(std::size_t b, const kv::Key& key, const Visit& visit) {
    bool all = true;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      std::uint64_t state = hash64(std::as_bytes(std::span(key.bytes)), layer);
      for (std::size_t i = 0; i < kRow; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        all &= visit(keys_[(layer * blocks_ + b) * kRow + i], static_cast<std::uint16_t>(state >> 48));
        all &= visit(values_[(layer * blocks_ + b) * kRow + i], static_cast<std::uint16_t>(state >> 40));
      }
    }
    return all;
  }

  std::size_t blocks_;
  std::vector<std::uint16_t> keys_, values_;
};

// Ten documents; half of them begin alike.
std::vector<kv::Key> chain(unsigned document) {
  std::vector<std::int32_t> tokens(kBlock * (9 + 7 * (document % 4)));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const bool common = document % 2 == 0 && t < 24;
    tokens[t] = static_cast<std::int32_t>(common ? t : 1000 * (document + 1) + t);
  }
  return kv::block_keys(tokens, kBlock).value();
}

struct Hammered {
  unsigned loaded = 0;  // blocks
  unsigned wrong = 0;   // blocks that are not what their keys stand for, calls that fail as they must not
};

void save_one(kv::Store& store, std::span<const kv::Key> keys, bool cancels, Hammered& hammered) {
  Blocks blocks(keys.size());
  blocks.fill(keys);
  auto save = store.save(keys, blocks.view());
  if (!save) {
    ++hammered.wrong;
    return;
  }
  if (cancels) save->cancel();
  // Full is an answer: others may hold every extent at this moment.
  if (const auto saved = save->wait(); !saved && saved.error().code != SHALE_FULL && !cancels) ++hammered.wrong;
}

void load_one(kv::Store& store, std::span<const kv::Key> keys, bool cancels, Hammered& hammered) {
  Blocks blocks(keys.size());
  auto load = store.load(keys, blocks.view());
  if (!load) {
    ++hammered.wrong;
    return;
  }
  if (cancels) {
    load->cancel();
    blocks.fill(keys);  // the view is the caller's again: a late write would race with this
    return;
  }
  (void)load->wait();  // an error is that of the failures below
  std::vector<bool> came(load->blocks(), true);
  const std::vector<shale_failure> failures = load->failures().value();
  for (const shale_failure& failure : failures) {
    if (failure.code != SHALE_NOT_FOUND) ++hammered.wrong;  // removed meanwhile, or never damaged
    for (std::uint32_t b = 0; b < failure.blocks; ++b) came[failure.first_block + b] = false;
  }
  for (std::size_t b = 0; b < came.size(); ++b) {
    if (!came[b]) continue;
    ++hammered.loaded;
    hammered.wrong += !blocks.holds(b, keys[b]);
  }
}

Hammered hammer(kv::Store& store, unsigned seed, unsigned calls) {
  std::mt19937 random(seed);
  Hammered hammered;
  for (unsigned call = 0; call < calls; ++call) {
    const auto keys = chain(static_cast<unsigned>(random() % 10));
    switch (const auto what = static_cast<unsigned>(random() % 16); what) {
      case 0:
        hammered.wrong += !store.remove(keys);
        break;
      case 1:
        hammered.wrong += !store.pin(keys) + !store.unpin(keys);
        break;
      case 2:
        hammered.wrong += !store.stats() + !store.take_events(10) + !store.touch(keys);
        break;
      case 3:
      case 4:
        load_one(store, keys, true, hammered);
        break;
      default:
        if (what < 9) {
          save_one(store, keys, what == 5, hammered);
        } else {
          load_one(store, keys, false, hammered);
        }
    }
  }
  return hammered;
}

// Sound, at the latest after the store has put right what it counted twice, or not at all, while others were writing,
// which it does about five times a second when nothing is running.
kv::Result<void> settled(kv::Store& store) {
  for (int looks = 0;; ++looks) {
    const auto sound = store.check_integrity();
    if (sound || looks == 100) return sound;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void hammer_with_eight_threads(kv::Store& store) {
  std::atomic<unsigned> loaded = 0, wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const Hammered hammered = hammer(store, t, 150);
        loaded += hammered.loaded;
        wrong += hammered.wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(loaded, 0u);
  Hammered afterwards;
  for (unsigned document = 0; document < 10; ++document) load_one(store, chain(document), false, afterwards);
  EXPECT_EQ(afterwards.wrong, 0u);
}

TEST(StoreHammer, EightThreadsOnOneStore) {
  const TemporaryFolder folder;
  auto store = open_store(tiers_on(folder.path())).value();
  hammer_with_eight_threads(store);
}

TEST(StoreHammer, EightThreadsLeaveSoundBooks) {
  const TemporaryFolder folder;
  auto store = open_store(tiers_on(folder.path())).value();
  hammer_with_eight_threads(store);
  const auto sound = settled(store);
  EXPECT_TRUE(sound) << sound.error().message;
}

// What a process of its own does; its exit status.
int hammer_alone(const std::string& tiers, unsigned process) {
  auto store = open_store(tiers);
  if (!store) return 2;
  const Hammered hammered = hammer(*store, 100 + process, 200);
  if (!store->flush()) return 3;
  return hammered.wrong ? 1 : 0;
}

void hammer_from_three_processes(const TemporaryFolder& folder) {
  std::vector<pid_t> children;
  for (unsigned process = 0; process < 3; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      _exit(hammer_alone(tiers_on(folder.path()), process));
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "process ended with " << status;
  }
  auto store = open_store(tiers_on(folder.path())).value();
  Hammered hammered;
  for (unsigned document = 0; document < 10; ++document) load_one(store, chain(document), false, hammered);
  EXPECT_EQ(hammered.wrong, 0u);
  EXPECT_GT(hammered.loaded, 0u) << "something that the three have saved is there";
}

TEST(StoreHammer, ThreeProcessesOnOneFolder) { hammer_from_three_processes(TemporaryFolder()); }

TEST(StoreHammer, ThreeProcessesLeaveSoundBooks) {
  const TemporaryFolder folder;
  hammer_from_three_processes(folder);
  auto store = open_store(tiers_on(folder.path())).value();
  const auto sound = settled(store);
  EXPECT_TRUE(sound) << sound.error().message;
}

}  // namespace
}  // namespace shale::testing
