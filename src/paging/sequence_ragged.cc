// Sequences that drop tokens while they live: page tables of single pages, a head at a time.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "paging/sequence.h"

namespace shale {

PagingWork& PagingWork::operator+=(const PagingWork& other) {
  tokens_dropped += other.tokens_dropped;
  slots_copied += other.slots_copied;
  pages_freed += other.pages_freed;
  return *this;
}

namespace {

// The slot behind the last token that came before position `newest`. A token of the newest round may lie before it:
// what came while heads were compacted was moved into the history's holes, and stays there.
template <class Table>
std::uint32_t first_slot_since(const Table& table, std::uint32_t newest, std::uint32_t block_size) {
  auto slot = static_cast<std::uint32_t>(table.positions.size());
  for (; slot > 0; --slot) {
    const bool live = table.pages[(slot - 1) / block_size].live() >> (slot - 1) % block_size & 1;
    if (live && table.positions[slot - 1] < newest) break;
  }
  return slot;
}

// Takes the pages without a live token out of a table and its numbers, and trims what trails the last live one of each.
template <class Table>
std::vector<PageId> sweep(Table& table, std::span<const std::uint64_t> live, std::uint32_t block_size) {
  std::vector<PageId> emptied;
  std::size_t kept = 0;
  table.slots = table.holes = 0;
  for (std::size_t p = 0; p < table.pages.size(); ++p) {
    if (live[p] == 0) {
      emptied.push_back(table.pages[p].page);
      continue;
    }
    const auto count = static_cast<std::uint32_t>(std::bit_width(live[p]));
    PageSlot slot{table.pages[p].page, count, 0};
    slot.holes = slot.live() & ~live[p];
    table.slots += count;
    table.holes += count - slot.tokens();
    if (kept != p) {
      std::copy_n(&table.positions[p * block_size], block_size, &table.positions[kept * block_size]);
      std::copy_n(&table.notes[p * block_size], block_size, &table.notes[kept * block_size]);
    }
    table.pages[kept++] = slot;
  }
  table.pages.resize(kept);
  table.positions.resize(kept * block_size);
  table.notes.resize(kept * block_size);
  return emptied;
}

}  // namespace

bool Sequence::owns(PageId page) const {
  return pool_->is_split(pool_->block_of(page)) && pool_->page_references(page) == 1;
}

std::uint32_t Sequence::release(PageId page) {
  const std::uint32_t free_before = pool_->pages_free();
  const PoolBlockId block = pool_->block_of(page);
  if (pool_->is_split(block)) {
    pool_->release_page(page);
    return pool_->pages_free() - free_before;
  }
  const auto held = std::ranges::find(blocks_, block);
  assert(held != blocks_.end());
  const auto in_use = pages_in_use_.begin() + (held - blocks_.begin());
  if (--*in_use > 0) return 0;
  pool_->release_block(block);
  blocks_.erase(held);
  pages_in_use_.erase(in_use);
  return pool_->shape().pages_per_block();
}

// Blocks that nobody else holds any more become single pages; of those the ones that were dropped here return.
std::uint32_t Sequence::split_own_blocks() {
  const std::uint32_t free_before = pool_->pages_free();
  std::size_t kept = 0;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const PoolBlockId block = blocks_[b];
    if (pool_->references(block) > 1) {
      blocks_[kept] = block;
      pages_in_use_[kept++] = pages_in_use_[b];
      continue;
    }
    pool_->split_block(block);
    for (std::uint32_t i = 0; pages_in_use_[b] < tables_.size() && i < tables_.size(); ++i) {
      const PageId page = pool_->page_of(block, i);
      if (std::ranges::find(tables_[i].pages, page, &PageSlot::page) == tables_[i].pages.end())
        pool_->release_page(page);
    }
  }
  blocks_.resize(kept);
  pages_in_use_.resize(kept);
  return pool_->pages_free() - free_before;
}

void Sequence::part() {
  assert(!diverged_);
  if (ragged_) return;
  const std::size_t slots = blocks_.size() * pool_->shape().block_size;
  tables_.resize(pool_->shape().pages_per_block());
  move_tail_to_tables(tail_tokens_);
  for (Table& table : tables_) {
    // All pages but the last are full.
    table.positions.resize(slots);
    std::iota(table.positions.begin(), table.positions.end(), 0u);
    table.notes.resize(slots);
  }
  ragged_ = true;
  pages_in_use_.assign(blocks_.size(), pool_->shape().pages_per_block());
  split_own_blocks();
}

std::span<const std::uint32_t> Sequence::positions(std::uint32_t layer, std::uint32_t head) const {
  assert(ragged_);
  return tables_[pool_->shape().page_index(layer, head)].positions;
}

std::span<float> Sequence::notes(std::uint32_t layer, std::uint32_t head) {
  assert(ragged_);
  return tables_[pool_->shape().page_index(layer, head)].notes;
}

// Where nothing is lost, a last page that others hold, too, is copied first: attention adds up by pages, and what is
// exact has its tokens at the same places of them however it came about.
Status Sequence::append_pages(std::uint32_t count) {
  const PageShape& shape = pool_->shape();
  const auto room = [&](const Table& table) {
    if (table.pages.empty() || (lossy_ && !owns(table.pages.back().page))) return 0u;
    return std::min(count, shape.block_size - table.pages.back().count);
  };
  const auto copies = [&](const Table& table) { return room(table) > 0 && !owns(table.pages.back().page); };
  std::size_t needed = 0;
  for (const Table& table : tables_) needed += shape.pages_for(count - room(table)) + copies(table);
  if (pool_->pages_free() < needed) {
    return fail(ErrorCode::kFull, "{} more tokens need {} pages of the pool, {} are free", count, needed,
                pool_->pages_free());
  }
  for (Table& table : tables_) {
    std::uint32_t position = length_;
    const auto add = [&](std::uint32_t tokens) {
      PageSlot& last = table.pages.back();
      const std::size_t first = (table.pages.size() - 1) * shape.block_size + last.count;
      std::iota(&table.positions[first], &table.positions[first] + tokens, position);
      std::fill_n(&table.notes[first], tokens, 0.0f);
      last.count += tokens;
      table.slots += tokens;
      position += tokens;
    };
    const std::uint32_t fits = room(table);
    if (copies(table)) {
      const PageId shared = std::exchange(table.pages.back().page, *pool_->allocate_page());
      pool_->copy_page(shared, table.pages.back().page);
      release(shared);
    }
    if (fits > 0) add(fits);
    for (std::uint32_t left = count - fits; left > 0;) {
      const std::uint32_t tokens = std::min(left, shape.block_size);
      table.pages.push_back({*pool_->allocate_page(), 0, 0});
      table.positions.resize(table.pages.size() * shape.block_size);
      table.notes.resize(table.positions.size());
      add(tokens);
      left -= tokens;
    }
  }
  length_ += count;
  return {};
}

void Sequence::truncate_pages(std::uint32_t length) {
  assert(length <= length_);
  const std::uint32_t block_size = pool_->shape().block_size;
  for (Table& table : tables_) {
    for (std::uint32_t left = length_ - length; left > 0;) {
      PageSlot& last = table.pages.back();
      const std::uint32_t tokens = std::min(left, last.count);
      assert(last.holes >> (last.count - tokens) == 0);
      last.count -= tokens;
      table.slots -= tokens;
      left -= tokens;
      if (last.live() != 0) break;
      table.slots -= last.count;
      table.holes -= last.count;
      release(last.page);
      table.pages.pop_back();
      table.positions.resize(table.pages.size() * block_size);
      table.notes.resize(table.positions.size());
    }
  }
  length_ = length;
}

PagingWork Sequence::drop(std::span<const std::vector<std::uint32_t>> slots, bool visible) {
  assert(ragged_ && slots.size() == tables_.size());
  const std::uint32_t block_size = pool_->shape().block_size;
  PagingWork work;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (slots[i].empty()) continue;
    Table& table = tables_[i];
    std::vector<std::uint64_t> live(table.pages.size());
    std::ranges::transform(table.pages, live.begin(), &PageSlot::live);
    for (const std::uint32_t slot : slots[i]) {
      assert(live[slot / block_size] >> slot % block_size & 1);
      live[slot / block_size] &= ~(std::uint64_t{1} << slot % block_size);
    }
    work.tokens_dropped += slots[i].size();
    for (const PageId page : sweep(table, live, block_size)) work.pages_freed += release(page);
  }
  lossy_ = lossy_ || (visible && work.tokens_dropped > 0);
  work.pages_freed += split_own_blocks();
  return work;
}

void Sequence::copy_slots(Table& table, const SlotCopy& copy) {
  const std::uint32_t block_size = pool_->shape().block_size;
  pool_->copy_tokens(table.pages[copy.from / block_size].page, copy.from % block_size,
                     table.pages[copy.to / block_size].page, copy.to % block_size, copy.count);
  std::memmove(&table.positions[copy.to], &table.positions[copy.from], copy.count * sizeof(std::uint32_t));
  std::memmove(&table.notes[copy.to], &table.notes[copy.from], copy.count * sizeof(float));
}

// Those of every row of pages that others hold are packed by themselves, so that the table's order stays.
std::uint32_t Sequence::pages_to_own(const Table& table) const {
  const PageShape& shape = pool_->shape();
  std::uint32_t pages = 0, tokens = 0;
  for (const PageSlot& slot : table.pages) {
    if (owns(slot.page)) {
      pages += shape.pages_for(std::exchange(tokens, 0u));
    } else {
      tokens += slot.tokens();
    }
  }
  return pages + shape.pages_for(tokens);
}

std::uint32_t Sequence::pages_to_own() const {
  assert(ragged_);
  std::uint32_t pages = 0;
  for (const Table& table : tables_) pages += pages_to_own(table);
  return pages;
}

// The table with the tokens of others' pages copied into fresh ones, pages_to_own() of them.
Sequence::Table Sequence::owned(const Table& table, std::span<const PageId> fresh) const {
  const std::uint32_t block_size = pool_->shape().block_size;
  Table own;
  const auto add_page = [&](const PageSlot& slot) {
    own.pages.push_back(slot);
    own.positions.resize(own.pages.size() * block_size);
    own.notes.resize(own.positions.size());
  };
  const auto copy_numbers = [&](std::size_t from, std::size_t to, std::uint32_t count) {
    std::copy_n(&table.positions[from], count, &own.positions[to]);
    std::copy_n(&table.notes[from], count, &own.notes[to]);
  };
  std::uint32_t room = 0;  // of the last page, for what comes next
  for (std::size_t p = 0; p < table.pages.size(); ++p) {
    const PageSlot& slot = table.pages[p];
    if (owns(slot.page)) {
      room = 0;
      add_page(slot);
      copy_numbers(p * block_size, (own.pages.size() - 1) * block_size, block_size);
      own.slots += slot.count;
      own.holes += slot.count - slot.tokens();
      continue;
    }
    for (std::uint64_t live = slot.live(); live != 0;) {
      if (room == 0) {
        add_page({fresh.front(), 0, 0});
        fresh = fresh.subspan(1);
        room = block_size;
      }
      const auto first = static_cast<std::uint32_t>(std::countr_zero(live));
      const auto row = static_cast<std::uint32_t>(std::countr_one(live >> first));
      const std::uint32_t count = std::min(row, room);
      PageSlot& last = own.pages.back();
      pool_->copy_tokens(slot.page, first, last.page, last.count, count);
      copy_numbers(p * block_size + first, (own.pages.size() - 1) * block_size + last.count, count);
      last.count += count;
      own.slots += count;
      room -= count;
      live &= first + count == 64 ? 0 : ~std::uint64_t{0} << (first + count);
    }
  }
  return own;
}

PagingWork Sequence::own(Executor& executor) {
  assert(ragged_ && lossy_);
  PagingWork work{.pages_freed = split_own_blocks()};
  const std::uint32_t needed = pages_to_own();
  if (needed == 0 || needed > pool_->pages_free()) return work;
  std::vector<std::vector<PageId>> fresh(tables_.size()), shared(tables_.size());
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    fresh[i].resize(pages_to_own(tables_[i]));
    std::ranges::generate(fresh[i], [this] { return *pool_->allocate_page(); });
    for (const PageSlot& slot : tables_[i].pages) {
      if (owns(slot.page)) continue;
      work.slots_copied += slot.tokens();
      if (pool_->is_split(pool_->block_of(slot.page))) shared[i].push_back(slot.page);
    }
  }
  executor.parallel_for(tables_.size(), [&](std::size_t i) { tables_[i] = owned(tables_[i], fresh[i]); });
  for (const auto& pages : shared) {
    for (const PageId page : pages) pool_->release_page(page);
  }
  const std::uint64_t let_go = blocks_.size() * std::uint64_t{pool_->shape().pages_per_block()};
  work.pages_freed += let_go - std::min<std::uint64_t>(let_go, needed);
  pool_->release_blocks(blocks_);
  blocks_.clear();
  pages_in_use_.clear();
  return work;
}

bool Sequence::packed(const Table& table) const {
  return table.holes == 0 && table.pages.size() == pool_->shape().pages_for(table.slots);
}

bool Sequence::packed(std::uint32_t layer, std::uint32_t head) const {
  assert(ragged_);
  return packed(tables_[pool_->shape().page_index(layer, head)]);
}

PagingWork Sequence::compact(Compaction how, std::uint32_t newest, std::span<const std::uint32_t> tables,
                             Executor& executor) {
  assert(ragged_);
  if (how == Compaction::kNone) return {};
  const std::uint32_t block_size = pool_->shape().block_size;
  std::vector<std::vector<PageId>> emptied(tables.size());
  std::vector<std::uint32_t> copied(tables.size());
  executor.parallel_for(tables.size(), [&](std::size_t i) {
    Table& table = tables_[tables[i]];
    if (packed(table)) return;
    std::vector<std::uint8_t> movable(table.pages.size());
    std::ranges::transform(table.pages, movable.begin(), [this](const PageSlot& slot) { return owns(slot.page); });
    if (how == Compaction::kRepack) {
      // What was appended stays behind the pages of others: `appended` looks for it at the table's end.
      std::fill(movable.begin(), std::find(movable.rbegin(), movable.rend(), 0).base(), 0);
    }
    const CompactionPlan plan =
        how == Compaction::kRepack
            ? plan_repack(table.pages, movable, block_size)
            : plan_hole_fill(table.pages, movable, block_size, first_slot_since(table, newest, block_size));
    for (const SlotCopy& copy : plan.copies) copy_slots(table, copy);
    copied[i] = plan.slots_copied();
    emptied[i] = sweep(table, plan.live, block_size);
  });
  PagingWork work;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    for (const PageId page : emptied[i]) work.pages_freed += release(page);
    work.slots_copied += copied[i];
  }
  return work;
}

}  // namespace shale
