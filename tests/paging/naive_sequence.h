// A sequence beside a plain copy of what it should hold: every token of every head has a value of its own, written to
// its slot in each of its channels, and `check` reads all of them back through the page tables.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "paging/prefix_tree.h"
#include "paging/sequence.h"

namespace shale {

class NaiveSequence {
 public:
  explicit NaiveSequence(PagePool& pool) : pool_(&pool), sequence_(pool), heads_(pool.shape().pages_per_block()) {}

  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }

  // Appends `count` tokens whose values derive from `seed` and the token's number, the same for equal seeds.
  // False when the pool was full.
  bool append(std::uint32_t count, std::uint32_t seed) {
    const auto before = pool_->blocks_free();
    if (const auto status = sequence_.append(count); !status) {
      EXPECT_EQ(status.error().code, ErrorCode::kFull);
      EXPECT_EQ(pool_->blocks_free(), before);
      return false;
    }
    for (std::uint32_t i = 0; i < heads_.size(); ++i) {
      for (std::uint32_t token = 0; token < count; ++token) {
        const auto place = sequence_.appended(layer(i), head(i), token, count);
        const std::uint16_t value = value_of(seed, token, i);
        write(place.page, place.slot, value);
        heads_[i].push_back(value);
      }
    }
    tail_ += count;
    if (!diverged_) prefix_ += count;
    length_ += count;
    return true;
  }

  // Of a random span of whole blocks at the end that nobody shares, each head keeps a random number of rows.
  void keep_rows(std::uint32_t random) {
    const std::uint32_t block_size = pool_->shape().block_size, blocks = tail_ / block_size;
    if (blocks == 0) return;
    const std::uint32_t first = random % blocks, count = 1 + random / 7 % (blocks - first);
    const std::uint32_t at = length_ - tail_ + first * block_size, tokens = count * block_size;
    const auto last = sequence_.last_blocks(at, tokens);
    if (std::ranges::any_of(last, [&](PoolBlockId block) { return pool_->references(block) > 1; })) return;
    const auto before = pool_->pages_free();
    std::uint32_t freed = 0;
    std::vector<std::uint32_t> rows(heads_.size());
    for (std::uint32_t i = 0; i < heads_.size(); ++i) {
      rows[i] = (random / 31 + i * 5) % (tokens + 1);
      freed += pool_->shape().pages_for(tokens) - pool_->shape().pages_for(rows[i]);
      const auto begin = heads_[i].end() - tail_ + first * block_size;
      heads_[i].erase(begin + rows[i], begin + tokens);
    }
    sequence_.keep_rows(at, tokens, rows);
    EXPECT_EQ(pool_->pages_free(), before + freed);
    if (!diverged_) prefix_ = first * block_size;
    tail_ -= first * block_size + tokens;
    diverged_ = true;
  }

  // Shares the whole blocks that another one begins with, where this one ends with one.
  void append_blocks_of(const NaiveSequence& other, std::uint32_t random) {
    const std::uint32_t block_size = pool_->shape().block_size;
    if (this == &other || tail_ % block_size != 0) return;
    const std::uint32_t tokens = random % (other.prefix_ / block_size + 1) * block_size;
    sequence_.append_blocks(other.sequence_.blocks(tokens));
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      heads_[i].insert(heads_[i].end(), other.heads_[i].begin(), other.heads_[i].begin() + tokens);
    }
    tail_ += tokens;
    length_ += tokens;
    if (!diverged_) prefix_ += tokens;
  }

  void truncate(std::uint32_t random) {
    const std::uint32_t drop = random % (tail_ + 1);
    sequence_.truncate(length_ - drop);
    for (auto& values : heads_) values.resize(values.size() - drop);
    tail_ -= drop;
    length_ -= drop;
    if (!diverged_) prefix_ -= drop;
  }

  void become_fork_of(const NaiveSequence& other) {
    if (this == &other) return;
    Sequence fork = other.sequence_.fork();
    *this = NaiveSequence(*pool_);
    sequence_ = std::move(fork);
    copy_model(other);
  }

  // Adopts a random prefix of another sequence's agreeing tokens, which may end inside a page.
  void become_prefix_of(const NaiveSequence& other, std::uint32_t random) {
    if (this == &other) return;
    const std::uint32_t tokens = random % (other.prefix_ + 1);
    const std::vector<PoolBlockId> blocks = other.sequence_.blocks(tokens);
    clear();
    sequence_.adopt_prefix(blocks, tokens);
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      heads_[i].assign(other.heads_[i].begin(), other.heads_[i].begin() + tokens);
    }
    length_ = tail_ = prefix_ = tokens;
  }

  // Adopts from the tree. Values derive from tokens (see append_tokens), so what the tree gives can be checked.
  std::uint32_t adopt(PrefixTree& tree, std::span<const std::int32_t> tokens) {
    clear();
    const std::uint32_t matched = tree.adopt(tokens, sequence_);
    for (std::uint32_t i = 0; i < heads_.size(); ++i) {
      for (std::uint32_t token = 0; token < matched; ++token)
        heads_[i].push_back(value_of(seed_of(tokens, token), 0, i));
    }
    length_ = tail_ = prefix_ = matched;
    return matched;
  }
  // Appends the next `count` of `tokens`, each with a value of the tokens up to it. False when the pool was full.
  bool append_tokens(std::span<const std::int32_t> tokens, std::uint32_t count) {
    const std::uint32_t first = length_;
    if (!append(count, 0)) return false;
    for (std::uint32_t i = 0; i < heads_.size(); ++i) {
      for (std::uint32_t token = 0; token < count; ++token) {
        const auto place = sequence_.appended(layer(i), head(i), token, count);
        heads_[i][first + token] = value_of(seed_of(tokens, first + token), 0, i);
        write(place.page, place.slot, heads_[i][first + token]);
      }
    }
    return true;
  }

  void clear() {
    sequence_.clear();
    for (auto& values : heads_) values.clear();
    length_ = tail_ = prefix_ = 0;
    diverged_ = false;
  }

  void check() const {
    const auto sound = sequence_.check_integrity();
    ASSERT_TRUE(sound) << sound.error().message;
    ASSERT_EQ(sequence_.length(), length_);
    ASSERT_EQ(sequence_.lossy(), diverged_);
    for (std::uint32_t i = 0; i < heads_.size(); ++i) {
      const HeadTable table = sequence_.table(layer(i), head(i));
      ASSERT_EQ(table.tokens, heads_[i].size());
      ASSERT_EQ(sequence_.resident(layer(i), head(i)), heads_[i].size());
      std::size_t token = 0;
      for (const PageSlot slot : table.pages) {
        for (std::uint32_t s = 0; s < slot.count; ++s, ++token) check_token(slot.page, s, heads_[i][token]);
      }
    }
  }

 private:
  std::uint32_t layer(std::uint32_t i) const { return i / pool_->shape().kv_heads; }
  std::uint32_t head(std::uint32_t i) const { return i % pool_->shape().kv_heads; }
  static std::uint32_t seed_of(std::span<const std::int32_t> tokens, std::uint32_t last) {
    std::uint32_t seed = 1;
    for (std::uint32_t i = 0; i <= last; ++i) seed = seed * 31 + static_cast<std::uint32_t>(tokens[i]) + 7;
    return seed;
  }
  static std::uint16_t value_of(std::uint32_t seed, std::uint32_t token, std::uint32_t i) {
    return static_cast<std::uint16_t>((seed * 2654435761u + token * 40503u + i * 977u) >> 8);
  }

  // Through the pool alone, wherever it lies.
  std::vector<std::byte> bytes_of(PageId page) const {
    std::vector<std::byte> bytes(pool_->shape().page_bytes());
    pool_->copy_out(page, bytes);
    pool_->fence();
    return bytes;
  }

  void write(PageId page, std::uint32_t slot, std::uint16_t value) {
    const PageShape& shape = pool_->shape();
    std::vector<std::byte> bytes = bytes_of(page);
    const auto view = MutablePageView::of(bytes.data(), shape);
    for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
      view.keys[c * shape.block_size + slot].bits = value;
      view.values[slot * shape.head_dim + c].bits = static_cast<std::uint16_t>(~value);
    }
    pool_->copy_in(bytes, page);
    pool_->fence();
  }

  void check_token(PageId page, std::uint32_t slot, std::uint16_t value) const {
    const PageShape& shape = pool_->shape();
    const std::vector<std::byte> bytes = bytes_of(page);
    const auto view = PageView::of(bytes.data(), shape);
    for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
      ASSERT_EQ(view.keys[c * shape.block_size + slot].bits, value);
      ASSERT_EQ(view.values[slot * shape.head_dim + c].bits, static_cast<std::uint16_t>(~value));
    }
  }

  void copy_model(const NaiveSequence& other) {
    heads_ = other.heads_;
    length_ = other.length_;
    tail_ = other.tail_;
    prefix_ = other.prefix_;
    diverged_ = other.diverged_;
  }

  PagePool* pool_;
  Sequence sequence_;
  std::vector<std::vector<std::uint16_t>> heads_;
  std::uint32_t length_ = 0, tail_ = 0, prefix_ = 0;
  bool diverged_ = false;
};

}  // namespace shale
