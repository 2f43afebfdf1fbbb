#include "cache/entry_index.h"

#include <gtest/gtest.h>

#include <random>

namespace shale {
namespace {

using Tokens = std::vector<std::int32_t>;

const Fingerprint kFingerprint{.hash = {1, 2}, .model = "test"};

EntryKey add(EntryIndex& index, const EntryKey& parent, std::uint32_t first, const Tokens& tokens) {
  const EntryKey key = entry_key(kFingerprint, parent, tokens);
  index.add(key, parent, first, tokens);
  return key;
}

std::uint32_t covered(const std::vector<EntryIndex::Link>& chain) {
  std::uint32_t sum = 0;
  for (const auto& link : chain) sum += link.matched;
  return sum;
}

TEST(EntryIndex, FollowsEntriesThatContinueOneAnother) {
  EntryIndex index;
  const EntryKey document = add(index, {}, 0, {1, 2, 3});
  const EntryKey turn = add(index, document, 3, {4, 5});
  add(index, document, 3, {6});

  const auto chain = index.match(Tokens{1, 2, 3, 4, 5, 9});
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0].entry->key, document);
  EXPECT_EQ(chain[1].entry->key, turn);
  EXPECT_EQ(covered(chain), 5u);
  EXPECT_EQ(index.find(document)->children, 2u);
}

TEST(EntryIndex, EndsInsideAnEntry) {
  EntryIndex index;
  add(index, {}, 0, {1, 2, 3, 4});
  const auto chain = index.match(Tokens{1, 2, 7});
  ASSERT_EQ(chain.size(), 1u);
  EXPECT_EQ(chain[0].matched, 2u);
}

TEST(EntryIndex, PrefersTheChainThatCoversMost) {
  EntryIndex index;
  const EntryKey head = add(index, {}, 0, {1, 2});
  add(index, {}, 0, {1, 2, 3, 8});
  add(index, head, 2, {3, 4, 5});
  // {1,2,3,8} shares three tokens; {1,2} with its continuation {3,4,5} shares five.
  EXPECT_EQ(covered(index.match(Tokens{1, 2, 3, 4, 5, 6})), 5u);
  EXPECT_EQ(covered(index.match(Tokens{1, 2, 3, 8})), 4u);
}

TEST(EntryIndex, NothingInCommonIsNoChain) {
  EntryIndex index;
  EXPECT_TRUE(index.match(Tokens{1}).empty());
  add(index, {}, 0, {5, 6});
  EXPECT_TRUE(index.match(Tokens{1, 5, 6}).empty());
  EXPECT_TRUE(index.match(Tokens{}).empty());
}

TEST(EntryIndex, ARemovedParentHidesItsChildrenUntilItIsBack) {
  EntryIndex index;
  const EntryKey document = add(index, {}, 0, {1, 2, 3});
  add(index, document, 3, {4, 5});
  index.remove(document);
  EXPECT_TRUE(index.match(Tokens{1, 2, 3, 4, 5}).empty());
  ASSERT_TRUE(index.check_integrity());
  add(index, {}, 0, {1, 2, 3});
  EXPECT_EQ(covered(index.match(Tokens{1, 2, 3, 4, 5})), 5u);
  EXPECT_EQ(index.find(document)->children, 1u);
  EXPECT_TRUE(index.check_integrity());
}

// Entries come from a folder that others may write to: their shape must cost neither stack nor time.
TEST(EntryIndex, MatchesChainsAndSiblingsOfAnyShapeInLinearTime) {
  EntryIndex index;
  constexpr std::uint32_t kDepth = 60000;
  EntryKey parent;
  for (std::uint32_t i = 0; i < kDepth; ++i) parent = add(index, parent, i, {1});
  for (std::uint32_t i = 2; i < 200; ++i) add(index, {}, 0, Tokens(i, 1));
  const auto chain = index.match(Tokens(kDepth + 5, 1));
  EXPECT_EQ(chain.size(), kDepth);
  EXPECT_EQ(covered(chain), kDepth);
}

TEST(EntryIndex, AnEntryThatStandsElsewhereHidesNoSoundOne) {
  EntryIndex index;
  const EntryKey head = add(index, {}, 0, {1, 2});
  add(index, head, 7, {3, 4, 5});  // its keys were rotated for position 7
  add(index, {}, 0, {1, 2, 3});
  EXPECT_EQ(covered(index.match(Tokens{1, 2, 3, 4, 5})), 3u);
}

// Against the definition: the best over all chains, by exhaustive search.
std::uint32_t best_cover(const std::vector<const Entry*>& entries, const EntryKey& parent,
                         std::span<const std::int32_t> tokens) {
  std::uint32_t best = 0;
  for (const Entry* entry : entries) {
    if (entry->parent != parent) continue;
    std::uint32_t matched = 0;
    while (matched < tokens.size() && matched < entry->tokens.size() && tokens[matched] == entry->tokens[matched])
      ++matched;
    const bool whole = matched == entry->tokens.size();
    best = std::max(best, matched + (whole ? best_cover(entries, entry->key, tokens.subspan(matched)) : 0));
  }
  return best;
}

TEST(EntryIndex, FindsTheLongestPrefixInRandomTrees) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    EntryIndex index;
    std::vector<EntryKey> keys = {EntryKey{}};
    const auto random_tokens = [&](int most) {
      Tokens tokens(1 + random() % most);
      for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 3);
      return tokens;
    };
    for (int i = 0; i < 40; ++i) {
      const EntryKey parent = keys[random() % keys.size()];
      const Entry* above = std::as_const(index).find(parent);
      if (parent != EntryKey{} && !above) continue;
      keys.push_back(add(index, parent, above ? above->end_position() : 0, random_tokens(4)));
      if (random() % 8 == 0) {
        const EntryKey gone = keys[1 + random() % (keys.size() - 1)];
        if (index.find(gone)) index.remove(gone);
      }
      ASSERT_TRUE(index.check_integrity());
    }
    for (int i = 0; i < 50; ++i) {
      const Tokens wanted = random_tokens(12);
      EXPECT_EQ(covered(index.match(wanted)), best_cover(std::as_const(index).all(), {}, wanted));
    }
  }
}

}  // namespace
}  // namespace shale
