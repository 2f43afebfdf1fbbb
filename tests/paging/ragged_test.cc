// Sequences that drop tokens: beside a plain copy of what every head should still hold.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

#include "paging/prefix_tree.h"
#include "paging/queueing_device.h"
#include "paging/sequence.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .block_size = 8};
constexpr std::uint32_t kHeads = 4;
constexpr std::uint32_t kTables[kHeads] = {0, 1, 2, 3};

std::unique_ptr<PagePool> make_pool(std::uint32_t blocks, PageElement element = PageElement::kHalf,
                                    const Device& device = HostDevice()) {
  const PageShape shape = kShape.with(element);
  return PagePool::create(shape, blocks * shape.block_bytes(), device).value();
}

// What a token of a head is written as: of the sequence's number when it was appended, its position and the head.
std::uint16_t value_of(std::uint32_t seed, std::uint32_t position, std::uint32_t table) {
  return static_cast<std::uint16_t>((seed * 2654435761u + position * 40503u + table * 977u) >> 8);
}

std::vector<std::byte> bytes_of(const PagePool& pool, PageId id) {
  std::vector<std::byte> bytes(pool.shape().page_bytes());
  pool.copy_out(id, bytes);
  pool.fence();
  return bytes;
}

// Writes every byte of one token, through the pool alone, wherever it lies.
void write_token(PagePool& pool, PageId id, std::uint32_t slot, std::uint16_t value) {
  const auto rest = static_cast<std::uint16_t>(~value);
  std::vector<std::byte> bytes = bytes_of(pool, id);
  const auto write = [&](const auto& page, auto key, auto number) {
    for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
      page.keys[c * kShape.block_size + slot] = key;
      page.values[slot * kShape.head_dim + c] = number;
    }
  };
  if (pool.shape().element == PageElement::kHalf) {
    write(MutablePageView::of(bytes.data(), pool.shape()), Half{value}, Half{rest});
  } else {
    const auto page = MutableInt8PageView::of(bytes.data(), pool.shape());
    write(page, static_cast<std::int8_t>(value), static_cast<std::int8_t>(rest));
    page.key_scales[slot] = Half{value};
    page.value_scales[slot] = Half{rest};
  }
  pool.copy_in(bytes, id);
  pool.fence();
}

// What was written, from every byte of it; nothing where they disagree.
std::optional<std::uint16_t> read_token(const PagePool& pool, PageId id, std::uint32_t slot) {
  const auto agree = [&](const auto& page, auto key, auto number) {
    bool same = true;
    for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
      same = same && page.keys[c * kShape.block_size + slot] == key;
      same = same && page.values[slot * kShape.head_dim + c] == number;
    }
    return same;
  };
  const std::vector<std::byte> bytes = bytes_of(pool, id);
  std::uint16_t value = 0;
  bool same = false;
  if (pool.shape().element == PageElement::kHalf) {
    const auto page = PageView::of(bytes.data(), pool.shape());
    value = page.keys[slot].bits;
    same = agree(page, Half{value}, Half{static_cast<std::uint16_t>(~value)});
  } else {
    const auto page = Int8PageView::of(bytes.data(), pool.shape());
    value = page.key_scales[slot].bits;
    same = page.value_scales[slot].bits == static_cast<std::uint16_t>(~value) &&
           agree(page, static_cast<std::int8_t>(value), static_cast<std::int8_t>(~value));
  }
  return same ? std::optional(value) : std::nullopt;
}

class Ragged {
 public:
  explicit Ragged(PagePool& pool) : pool_(&pool), sequence(pool), tokens(kHeads) {}

  Ragged fork() const {
    Ragged copy(*pool_);
    copy.sequence = sequence.fork();
    copy.tokens = tokens;
    copy.cut_ = cut_;
    return copy;
  }

  bool append(std::uint32_t count, std::uint32_t seed) {
    const std::uint32_t first = sequence.length();
    if (!sequence.append(count)) return false;
    for (std::uint32_t i = 0; i < kHeads; ++i) {
      for (std::uint32_t t = 0; t < count; ++t) {
        const auto place = sequence.appended(i / 2, i % 2, t, count);
        const std::uint16_t value = value_of(seed, first + t, i);
        write_token(*pool_, place.page, place.slot, value);
        tokens[i][first + t] = value;
        if (sequence.ragged()) sequence.notes(i / 2, i % 2)[slot_of(i, first + t)] = static_cast<float>(value);
      }
    }
    return true;
  }

  // Drops each token of each head with a chance of one in `odds`.
  PagingWork drop(std::mt19937& random, std::uint32_t odds) {
    std::vector<std::vector<std::uint32_t>> slots(kHeads);
    for (std::uint32_t i = 0; i < kHeads; ++i) {
      for (auto token = tokens[i].begin(); token != tokens[i].end();) {
        if (random() % odds != 0) {
          ++token;
          continue;
        }
        slots[i].push_back(slot_of(i, token->first));
        token = tokens[i].erase(token);
      }
      std::ranges::shuffle(slots[i], random);
    }
    keep_all();
    return sequence.drop(slots);
  }

  // Drops these slots of every head.
  PagingWork drop(const std::vector<std::uint32_t>& slots) {
    for (std::uint32_t i = 0; i < kHeads; ++i) {
      for (const std::uint32_t slot : slots) tokens[i].erase(sequence.positions(i / 2, i % 2)[slot]);
    }
    keep_all();
    return sequence.drop(std::vector(kHeads, slots));
  }

  // What is there now is not truncated later.
  void keep_all() { cut_ = sequence.length(); }
  void truncate(std::uint32_t random) {
    const std::uint32_t length = sequence.length() - random % (sequence.length() - cut_ + 1);
    sequence.truncate(length);
    for (auto& head : tokens) head.erase(head.lower_bound(length), head.end());
  }

  // Every live slot holds the token of its position, and all tokens are there.
  void check() const {
    const Status sound = sequence.check_integrity();
    ASSERT_TRUE(sound) << sound.error().message;
    for (std::uint32_t i = 0; i < kHeads; ++i) {
      const HeadTable table = sequence.table(i / 2, i % 2);
      ASSERT_EQ(sequence.resident(i / 2, i % 2), tokens[i].size());
      std::map<std::uint32_t, std::uint16_t> found;
      for (std::size_t p = 0; p < table.pages.size(); ++p) {
        for (std::uint32_t s = 0; s < kShape.block_size; ++s) {
          if (!(table.pages[p].live() >> s & 1)) continue;
          const auto value = read_token(*pool_, table.pages[p].page, s);
          ASSERT_TRUE(value);
          const std::uint32_t slot = static_cast<std::uint32_t>(p) * kShape.block_size + s;
          found[sequence.ragged() ? sequence.positions(i / 2, i % 2)[slot] : slot] = *value;
        }
      }
      ASSERT_EQ(found, tokens[i]) << "table " << i;
    }
  }

  // Of a token that is there.
  std::uint32_t slot_of(std::uint32_t i, std::uint32_t position) const {
    const auto pages = sequence.table(i / 2, i % 2).pages;
    const auto positions = sequence.positions(i / 2, i % 2);
    for (std::uint32_t slot = 0; slot < positions.size(); ++slot) {
      const bool live = pages[slot / kShape.block_size].live() >> slot % kShape.block_size & 1;
      if (live && positions[slot] == position) return slot;
    }
    ADD_FAILURE() << "no slot of table " << i << " holds position " << position;
    return 0;
  }

 private:
  PagePool* pool_;

 public:
  Sequence sequence;
  std::vector<std::map<std::uint32_t, std::uint16_t>> tokens;  // by position, per table

 private:
  std::uint32_t cut_ = 0;
};

TEST(RaggedSequence, DroppingAWholePageReturnsIt) {
  const auto pool = make_pool(4);
  Ragged ragged(*pool);
  ASSERT_TRUE(ragged.append(20, 1));
  ragged.sequence.part();
  EXPECT_EQ(pool->pages_free(), 4u);
  std::vector<std::vector<std::uint32_t>> slots(kHeads);
  for (std::uint32_t s = 8; s < 16; ++s) {
    slots[2].push_back(s);
    ragged.tokens[2].erase(s);
  }
  const PagingWork work = ragged.sequence.drop(slots);
  EXPECT_EQ(work.tokens_dropped, 8);
  EXPECT_EQ(work.pages_freed, 1);
  EXPECT_EQ(pool->pages_free(), 5u);
  EXPECT_TRUE(ragged.sequence.lossy());
  EXPECT_THAT(ragged.sequence.positions(1, 0).first(12), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19));
  ragged.check();
  ASSERT_TRUE(ragged.append(5, 2));  // one head opens the page that came back
  ragged.check();
}

TEST(RaggedSequence, AScatteredTokenReturnsNoPageUntilCompacted) {
  const auto pool = make_pool(4);
  Ragged ragged(*pool);
  InlineExecutor executor;
  ASSERT_TRUE(ragged.append(32, 1));
  ragged.sequence.part();
  std::vector<std::vector<std::uint32_t>> slots(kHeads);
  for (auto& each : slots) each = {0, 1, 2, 3, 9, 10, 17, 30};
  for (auto& each : ragged.tokens) {
    for (const std::uint32_t slot : slots[0]) each.erase(slot);
  }
  EXPECT_EQ(ragged.sequence.drop(slots).pages_freed, 0);
  ragged.check();
  const PagingWork work = ragged.sequence.compact(Compaction::kRepack, 0, kTables, executor);
  EXPECT_EQ(work.pages_freed, 4);
  EXPECT_EQ(work.slots_copied, 4 * 24);
  ragged.check();
}

// A page whose last token went has no hole, and room for one that came later.
TEST(RaggedSequence, CompactionFillsPagesThatLostTheirLastTokens) {
  for (const Compaction how : {Compaction::kRepack, Compaction::kHoleFill}) {
    const auto pool = make_pool(4);
    Ragged ragged(*pool);
    InlineExecutor executor;
    ASSERT_TRUE(ragged.append(16, 1));
    ragged.sequence.part();
    ragged.drop({7});
    ASSERT_TRUE(ragged.append(1, 2));
    const PagingWork work = ragged.sequence.compact(how, 16, kTables, executor);
    EXPECT_EQ(work.pages_freed, 4) << to_string(how);
    ragged.check();
  }
}

// A token that came between an eviction and the compaction after it is of the next round, and lies in the history.
TEST(RaggedSequence, HoleFillingGoesOnBehindWhatItMoved) {
  const auto pool = make_pool(6);
  Ragged ragged(*pool);
  InlineExecutor executor;
  ASSERT_TRUE(ragged.append(24, 1));
  ragged.sequence.part();
  ragged.drop({0});
  ASSERT_TRUE(ragged.append(1, 2));
  EXPECT_EQ(ragged.sequence.compact(Compaction::kHoleFill, 16, kTables, executor).pages_freed, 4);
  EXPECT_EQ(ragged.sequence.positions(0, 0)[0], 24u);
  ASSERT_TRUE(ragged.append(2, 3));
  ragged.drop({3, 12});
  EXPECT_EQ(ragged.sequence.compact(Compaction::kHoleFill, 24, kTables, executor).pages_freed, 4);
  ragged.check();
}

// What a prefix tree or a fork still reads is neither written nor freed; it returns once they let go.
TEST(RaggedSequence, SharedPagesStayAsTheyAre) {
  const auto pool = make_pool(6);
  Ragged first(*pool);
  ASSERT_TRUE(first.append(30, 1));
  Ragged second = first.fork();
  first.sequence.part();
  std::mt19937 random(5);
  InlineExecutor executor;
  EXPECT_EQ(first.drop(random, 2).pages_freed, 0);
  EXPECT_EQ(first.sequence.compact(Compaction::kRepack, 0, kTables, executor).slots_copied, 0);
  first.check();
  second.check();
  ASSERT_TRUE(first.append(4, 3));  // on pages of its own: the shared last one is left as it is
  ASSERT_TRUE(second.append(1, 4));
  first.check();
  second.check();
  second.sequence.clear();
  first.drop(random, 2);
  EXPECT_GT(first.sequence.compact(Compaction::kRepack, 0, kTables, executor).pages_freed, 0u);
  first.check();
  first.sequence.clear();
  EXPECT_EQ(pool->blocks_free(), 6u);
}

// Attention adds up by pages: what is exact has its tokens at the same places of them, whoever held its last page.
TEST(RaggedSequence, AppendsIntoACopyOfALastPageThatOthersHold) {
  const auto pool = make_pool(6);
  Ragged first(*pool);
  ASSERT_TRUE(first.append(20, 1));
  Ragged second = first.fork();
  first.sequence.part();
  ASSERT_TRUE(first.append(2, 3));
  for (std::uint32_t layer = 0; layer < pool->shape().layers; ++layer) {
    for (std::uint32_t head = 0; head < pool->shape().kv_heads; ++head) {
      std::vector<std::uint32_t> counts;
      for (const PageSlot& slot : first.sequence.table(layer, head).pages) counts.push_back(slot.count);
      EXPECT_THAT(counts, testing::ElementsAre(8, 8, 6));
    }
  }
  first.check();
  second.check();
  ASSERT_TRUE(second.append(1, 4));
  first.check();
  second.check();
  first.sequence.clear();
  second.sequence.clear();
  EXPECT_EQ(pool->blocks_free(), 6u);
}

TEST(RaggedSequence, AppendsToScatteredPagesWhereNoBlockIsWhole) {
  const auto pool = make_pool(3);
  Ragged ragged(*pool);
  ASSERT_TRUE(ragged.append(16, 1));
  ragged.sequence.part();
  std::vector<std::vector<std::uint32_t>> slots(kHeads);
  for (std::uint32_t i = 0; i < kHeads; ++i) {
    for (std::uint32_t s = 0; s < 8; ++s) {
      slots[i].push_back(i % 2 * 8 + s);
      ragged.tokens[i].erase(i % 2 * 8 + s);
    }
  }
  EXPECT_EQ(ragged.sequence.drop(slots).pages_freed, 4);
  Ragged other(*pool);
  ASSERT_TRUE(other.append(8, 2));  // the last whole block
  EXPECT_FALSE(other.append(8, 2));
  other.sequence.part();
  ASSERT_TRUE(other.append(8, 2));
  other.check();
  ragged.check();
  EXPECT_EQ(other.append(1, 3), false);
  other.check();
}

// What was restored with changed values stays lossy when it is laid out again elsewhere.
TEST(RaggedSequence, AnOutlineKeepsLoss) {
  const auto pool = make_pool(6);
  Sequence lossy(*pool);
  ASSERT_TRUE(lossy.append(20));
  lossy.mark_lossy();
  Sequence whole(*pool), ragged(*pool);
  ASSERT_TRUE(whole.lay_out(lossy.outline()));
  EXPECT_TRUE(whole.lossy());
  EXPECT_EQ(whole.length(), 20u);
  whole.clear();
  lossy.part();
  ASSERT_TRUE(ragged.lay_out(lossy.outline()));
  EXPECT_TRUE(ragged.lossy());
}

// Random forks, appends, drops, compactions and truncations of several sequences, some of whose prompts a tree shares.
class RaggedSequences : public ::testing::TestWithParam<std::tuple<PageElement, std::shared_ptr<const Device>>> {};
INSTANTIATE_TEST_SUITE_P(Pools, RaggedSequences,
                         ::testing::Combine(::testing::Values(PageElement::kHalf, PageElement::kInt8),
                                            ::testing::Values(std::make_shared<HostDevice>(),
                                                              std::make_shared<QueueingDevice>())),
                         [](const auto& each) {
                           return fmt::format("{}_{}", name_of(std::get<0>(each.param)),
                                              std::get<1>(each.param)->name());
                         });

TEST_P(RaggedSequences, AgreeWithANaiveModel) {
  InlineExecutor executor;
  for (const std::uint32_t blocks : {8u, 60u}) {
    std::mt19937 engine(blocks);
    const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
    const auto pool = make_pool(blocks, std::get<0>(GetParam()), *std::get<1>(GetParam()));
    std::vector<Ragged> sequences;
    for (int i = 0; i < 4; ++i) sequences.emplace_back(*pool);
    for (std::uint32_t step = 0; step < 3000; ++step) {
      Ragged& each = sequences[random() % sequences.size()];
      switch (random() % 9) {
        case 0:
        case 1:
        case 2:
          each.append(random() % 20, step);
          break;
        case 3:
          each.sequence.part();
          break;
        case 4:
          if (each.sequence.ragged()) each.drop(engine, 2 + random() % 6);
          break;
        case 5:
          if (each.sequence.ragged()) {
            const std::uint32_t first = random() % kHeads;
            const auto how = random() % 2 ? Compaction::kRepack : Compaction::kHoleFill;
            each.sequence.compact(how, each.sequence.length() - random() % (each.sequence.length() + 1),
                                  std::span(kTables).subspan(first, 1 + random() % (kHeads - first)), executor);
            each.keep_all();
          }
          break;
        case 6: {
          Ragged& other = sequences[random() % sequences.size()];
          if (&other == &each) break;
          other = each.fork();
          break;
        }
        case 7:
          each.truncate(random());
          break;
        case 8:
          if (random() % 4 == 0) each = Ragged(*pool);
          break;
      }
      for (const Ragged& one : sequences) one.check();
      const Status sound = pool->check_integrity();
      ASSERT_TRUE(sound) << sound.error().message;
      if (testing::Test::HasFailure()) return;
    }
    sequences.clear();
    EXPECT_EQ(pool->blocks_free(), blocks);
  }
}

}  // namespace
}  // namespace shale
