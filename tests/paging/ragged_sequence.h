// A sequence beside a plain copy of what each of its heads should still hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "paging/sequence.h"

namespace shale::ragged_sequence {

inline constexpr PageShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .block_size = 8};
inline constexpr std::uint32_t kHeads = 4;
inline constexpr std::uint32_t kTables[kHeads] = {0, 1, 2, 3};

inline std::unique_ptr<PagePool> make_pool(std::uint32_t blocks, PageElement element = PageElement::kHalf,
                                           const Device& device = HostDevice()) {
  const PageShape shape = kShape.with(element);
  return PagePool::create(shape, blocks * shape.block_bytes(), device).value();
}

// What a token of a head is written as: of the sequence's number when it was appended, its position and the head.
inline std::uint16_t value_of(std::uint32_t seed, std::uint32_t position, std::uint32_t table) {
  return static_cast<std::uint16_t>((seed * 2654435761u + position * 40503u + table * 977u) >> 8);
}

inline std::vector<std::byte> bytes_of(const PagePool& pool, PageId id) {
  std::vector<std::byte> bytes(pool.shape().page_bytes());
  pool.copy_out(id, bytes);
  pool.fence();
  return bytes;
}

// Writes every byte of one token, through the pool alone, wherever it lies.
inline void write_token(PagePool& pool, PageId id, std::uint32_t slot, std::uint16_t value) {
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
inline std::optional<std::uint16_t> read_token(const PagePool& pool, PageId id, std::uint32_t slot) {
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
      for (const auto& [position, value] : tokens[i]) {
        if (random() % odds == 0) slots[i].push_back(slot_of(i, position));
      }
      std::ranges::shuffle(slots[i], random);
    }
    return drop_by_head(slots);
  }

  // Drops these slots of every head.
  PagingWork drop(const std::vector<std::uint32_t>& slots) { return drop_by_head(std::vector(kHeads, slots)); }
  PagingWork drop_by_head(const std::vector<std::vector<std::uint32_t>>& slots) {
    for (std::uint32_t i = 0; i < kHeads; ++i) {
      for (const std::uint32_t slot : slots[i]) tokens[i].erase(sequence.positions(i / 2, i % 2)[slot]);
    }
    keep_all();
    return sequence.drop(slots);
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

}  // namespace shale::ragged_sequence
