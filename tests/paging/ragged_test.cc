// Sequences that drop tokens: beside a plain copy of what every head should still hold.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "paging/queueing_device.h"
#include "paging/ragged_sequence.h"

namespace shale {
namespace {

using ragged_sequence::kHeads;
using ragged_sequence::kTables;
using ragged_sequence::make_pool;
using ragged_sequence::Ragged;

TEST(RaggedSequence, DroppingAWholePageReturnsIt) {
  const auto pool = make_pool(4);
  Ragged ragged(*pool);
  ASSERT_TRUE(ragged.append(20, 1));
  ragged.sequence.part();
  EXPECT_EQ(pool->pages_free(), 4u);
  std::vector<std::vector<std::uint32_t>> slots(kHeads);
  for (std::uint32_t s = 8; s < 16; ++s) slots[2].push_back(s);
  const PagingWork work = ragged.drop_by_head(slots);
  EXPECT_EQ(work.tokens_dropped, 8);
  EXPECT_EQ(work.pages_freed, 1);
  EXPECT_EQ(pool->pages_free(), 5u);
  EXPECT_TRUE(ragged.sequence.lossy());
  EXPECT_THAT(ragged.sequence.positions(1, 0).first(12),
              ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19));
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
  EXPECT_EQ(ragged.drop({0, 1, 2, 3, 9, 10, 17, 30}).pages_freed, 0);
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

// The model writes what was appended last where `appended` says, after compaction, too.
TEST(RaggedSequence, RepackingLeavesWhatWasAppendedBehindThePagesOfOthers) {
  const auto pool = make_pool(6);
  Ragged ragged(*pool);
  Sequence other(*pool);
  InlineExecutor executor;
  ASSERT_TRUE(ragged.append(16, 1));
  const std::vector<PoolBlockId> second = {ragged.sequence.blocks(16)[1]};
  other.adopt_prefix(second, 8);
  ragged.sequence.part();
  ragged.drop({0, 1, 2});
  ASSERT_TRUE(ragged.append(1, 2));
  ragged.sequence.compact(Compaction::kRepack, 0, kTables, executor);
  const auto place = ragged.sequence.appended(0, 0, 0, 1);
  EXPECT_NE(pool->block_of(place.page), second[0]);
  EXPECT_EQ(ragged.sequence.table(0, 0).pages.back().page, place.page);
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

// What is left is copied, packed, in its order; the others keep the blocks as they are.
TEST(RaggedSequence, OwnsWhatIsLeftOfBlocksThatOthersHold) {
  const auto pool = make_pool(10);
  InlineExecutor executor;
  Ragged ragged(*pool);
  ASSERT_TRUE(ragged.append(40, 1));
  const Ragged others = ragged.fork();
  ragged.sequence.part();
  std::vector<std::vector<std::uint32_t>> slots(kHeads);
  for (std::uint32_t i = 0; i + 1 < kHeads; ++i) {  // the last head keeps every token
    for (std::uint32_t s = 0; s < 40; ++s) {
      if (s % 4 != i) slots[i].push_back(s);
    }
  }
  EXPECT_EQ(ragged.drop_by_head(slots).pages_freed, 0u);
  ASSERT_TRUE(ragged.append(4, 2));  // pages of its own behind
  EXPECT_EQ(ragged.sequence.pages_to_own(), 3 * 2u + 5);
  EXPECT_EQ(ragged.sequence.shared_blocks().size(), 5u);
  const PagingWork work = ragged.sequence.own(executor);
  EXPECT_EQ(work.slots_copied, 3 * 10u + 40);
  EXPECT_EQ(work.pages_freed, 5 * kHeads - 11u);
  EXPECT_EQ(ragged.sequence.pages_to_own(), 0u);
  EXPECT_TRUE(ragged.sequence.shared_blocks().empty());
  EXPECT_EQ(ragged.sequence.pages(), 11u + kHeads);
  EXPECT_THAT(ragged.sequence.positions(0, 1).first(10), ::testing::ElementsAre(1, 5, 9, 13, 17, 21, 25, 29, 33, 37));
  ragged.check();
  others.check();
}

TEST(RaggedSequence, OwnsInAFullPoolOnlyWhatOthersLetGo) {
  const auto pool = make_pool(5);
  InlineExecutor executor;
  std::mt19937 random(7);
  Ragged ragged(*pool);
  ASSERT_TRUE(ragged.append(40, 1));
  Ragged others = ragged.fork();
  ragged.sequence.part();
  ragged.drop(random, 2);
  const PagingWork none = ragged.sequence.own(executor);
  EXPECT_EQ(none.slots_copied + none.pages_freed, 0u);
  others.check();
  others.sequence.clear();
  EXPECT_EQ(ragged.sequence.own(executor).slots_copied, 0u);
  EXPECT_EQ(ragged.sequence.pages_to_own(), 0u);
  EXPECT_GT(ragged.sequence.compact(Compaction::kRepack, 0, kTables, executor).pages_freed, 0u);
  ragged.check();
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
      EXPECT_THAT(counts, ::testing::ElementsAre(8, 8, 6));
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
    for (std::uint32_t s = 0; s < 8; ++s) slots[i].push_back(i % 2 * 8 + s);
  }
  EXPECT_EQ(ragged.drop_by_head(slots).pages_freed, 4);
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
      switch (random() % 10) {
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
        case 9:
          if (each.sequence.ragged() && each.sequence.lossy()) {
            const bool fits = each.sequence.pages_to_own() <= pool->pages_free();
            each.sequence.own(executor);
            each.keep_all();
            EXPECT_TRUE(!fits || each.sequence.pages_to_own() == 0);
          }
          break;
      }
      for (const Ragged& one : sequences) one.check();
      const Status sound = pool->check_integrity();
      ASSERT_TRUE(sound) << sound.error().message;
      if (::testing::Test::HasFailure()) return;
    }
    sequences.clear();
    EXPECT_EQ(pool->blocks_free(), blocks);
  }
}

}  // namespace
}  // namespace shale
