#include "paging/sequence.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "paging/reserve_tightly.h"

namespace shale {

Sequence::Sequence(PagePool& pool) : pool_(&pool) {}

Sequence::~Sequence() { clear(); }

Sequence::Sequence(Sequence&& other) noexcept : pool_(other.pool_) { *this = std::move(other); }

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  tables_ = std::exchange(other.tables_, {});
  pages_in_use_ = std::exchange(other.pages_in_use_, {});
  length_ = std::exchange(other.length_, 0);
  prefix_tokens_ = std::exchange(other.prefix_tokens_, 0);
  tail_tokens_ = std::exchange(other.tail_tokens_, 0);
  diverged_ = std::exchange(other.diverged_, false);
  ragged_ = std::exchange(other.ragged_, false);
  lossy_ = std::exchange(other.lossy_, false);
  return *this;
}

Sequence Sequence::fork() const {
  Sequence copy(*pool_);
  copy.blocks_ = blocks_;
  copy.tables_ = tables_;
  copy.pages_in_use_ = pages_in_use_;
  copy.length_ = length_;
  copy.prefix_tokens_ = prefix_tokens_;
  copy.tail_tokens_ = tail_tokens_;
  copy.diverged_ = diverged_;
  copy.ragged_ = ragged_;
  copy.lossy_ = lossy_;
  pool_->retain_blocks(blocks_);
  for (const Table& table : tables_) {
    for (const PageSlot& slot : table.pages) {
      if (pool_->is_split(pool_->block_of(slot.page))) pool_->retain_page(slot.page);
    }
  }
  return copy;
}

BlockRun Sequence::before() const {
  return {std::span(blocks_).first(pool_->shape().pages_for(prefix_tokens_)), prefix_tokens_};
}

BlockRun Sequence::after() const {
  return {std::span(blocks_).last(pool_->shape().pages_for(tail_tokens_)), tail_tokens_};
}

HeadTable Sequence::table(std::uint32_t layer, std::uint32_t head) const {
  const PageShape& shape = pool_->shape();
  const std::uint32_t index = shape.page_index(layer, head);
  if (tables_.empty()) return {PageSlots({}, {}, after(), shape, index), tail_tokens_};
  const Table& own = tables_[index];
  HeadTable table{PageSlots(before(), own.pages, after(), shape, index), prefix_tokens_ + own.slots + tail_tokens_};
  if (ragged_ && !lossy_ && !own.pages.empty()) {
    const auto first = static_cast<std::uint32_t>(std::countr_zero(own.pages[0].live()));
    table.pages_gone = own.positions[first] / shape.block_size;
  }
  return table;
}

std::uint32_t Sequence::pages_of(std::span<const Table> tables) {
  std::size_t pages = 0;
  for (const Table& table : tables) pages += table.pages.size();
  return static_cast<std::uint32_t>(pages);
}

std::uint32_t Sequence::pages() const {
  const std::size_t blocks = before().blocks.size() + after().blocks.size();
  return static_cast<std::uint32_t>(blocks) * pool_->shape().pages_per_block() + pages_of(tables_);
}

std::vector<PageId> Sequence::page_ids() const {
  const PageShape& shape = pool_->shape();
  std::vector<PageId> ids;
  for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
    for (const PageSlot slot : table(i / shape.kv_heads, i % shape.kv_heads).pages) ids.push_back(slot.page);
  }
  return ids;
}

std::uint32_t Sequence::resident(std::uint32_t layer, std::uint32_t head) const {
  const std::uint32_t agreeing = prefix_tokens_ + tail_tokens_;
  if (tables_.empty()) return agreeing;
  const Table& own = tables_[pool_->shape().page_index(layer, head)];
  return agreeing + own.slots - own.holes;
}

void Sequence::own_last_block() {
  const PoolBlockId copy = *pool_->allocate_block();
  pool_->copy_block(blocks_.back(), copy);
  pool_->release_block(blocks_.back());
  blocks_.back() = copy;
}

Status Sequence::append(std::uint32_t count) {
  if (ragged_) return append_pages(count);
  const PageShape& shape = pool_->shape();
  const std::uint32_t fresh = shape.pages_for(tail_tokens_ + count) - shape.pages_for(tail_tokens_);
  const bool writes_last = count > 0 && tail_tokens_ % shape.block_size != 0;
  const bool copies = writes_last && pool_->references(blocks_.back()) > 1;
  const std::uint32_t needed = fresh + (copies ? 1 : 0);
  if (pool_->blocks_free() < needed) {
    return fail(ErrorCode::kFull, "{} more tokens need {} blocks of the pool, {} are free", count, needed,
                pool_->blocks_free());
  }
  if (copies) own_last_block();
  reserve_tightly(blocks_, blocks_.size() + fresh);
  for (std::uint32_t i = 0; i < fresh; ++i) blocks_.push_back(*pool_->allocate_block());
  tail_tokens_ += count;
  length_ += count;
  return {};
}

Sequence::Place Sequence::appended(std::uint32_t layer, std::uint32_t head, std::uint32_t i,
                                   std::uint32_t count) const {
  assert(i < count && (ragged_ || count <= tail_tokens_));
  const PageShape& shape = pool_->shape();
  const std::uint32_t index = shape.page_index(layer, head);
  if (!ragged_) {
    const std::uint32_t token = tail_tokens_ - count + i;
    return {pool_->page_of(after().blocks[token / shape.block_size], index), token % shape.block_size};
  }
  std::uint32_t from_end = count - i;
  auto slot = tables_[index].pages.rbegin();
  for (; from_end > slot->count; ++slot) from_end -= slot->count;
  return {slot->page, slot->count - from_end};
}

void Sequence::adopt_prefix(std::span<const PoolBlockId> blocks, std::uint32_t tokens) {
  assert(length_ == 0 && blocks_.empty() && !diverged_ && !ragged_);
  assert(blocks.size() == pool_->shape().pages_for(tokens));
  pool_->retain_blocks(blocks);
  blocks_.assign(blocks.begin(), blocks.end());
  length_ = tail_tokens_ = tokens;
}

// Heads part behind what they agreed on.
void Sequence::move_tail_to_tables(std::uint32_t tokens) {
  const std::span<const PoolBlockId> blocks = after().blocks.first(pool_->shape().pages_for(tokens));
  for (std::uint32_t i = 0; i < tables_.size(); ++i) {
    const PageSlots moved({}, {}, {blocks, tokens}, pool_->shape(), i);
    tables_[i].pages.insert(tables_[i].pages.end(), moved.begin(), moved.end());
    tables_[i].slots += tokens;
  }
  tail_tokens_ -= tokens;
}

void Sequence::append_blocks(std::span<const PoolBlockId> blocks) {
  const std::uint32_t block_size = pool_->shape().block_size;
  assert(!ragged_ && tail_tokens_ % block_size == 0);
  pool_->retain_blocks(blocks);
  reserve_tightly(blocks_, blocks_.size() + blocks.size());
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  const auto tokens = static_cast<std::uint32_t>(blocks.size()) * block_size;
  tail_tokens_ += tokens;
  length_ += tokens;
}

std::span<const PoolBlockId> Sequence::last_blocks(std::uint32_t first, std::uint32_t tokens) const {
  const std::uint32_t begin = length_ - tail_tokens_, block_size = pool_->shape().block_size;
  assert(!ragged_ && first >= begin && (first - begin) % block_size == 0 && first + tokens <= length_);
  return after().blocks.subspan((first - begin) / block_size, pool_->shape().pages_for(tokens));
}

void Sequence::keep_rows(std::uint32_t first_token, std::uint32_t tokens, std::span<const std::uint32_t> rows) {
  const PageShape& shape = pool_->shape();
  assert(rows.size() == shape.pages_per_block() && tokens % shape.block_size == 0);
  const std::span<const PoolBlockId> held = last_blocks(first_token, tokens);
  const std::vector<PoolBlockId> blocks(held.begin(), held.end());
  const std::uint32_t agreed = first_token - (length_ - tail_tokens_);
  lossy_ = true;
  if (diverged_) {
    move_tail_to_tables(agreed);
  } else {
    diverged_ = true;
    prefix_tokens_ = agreed;
    tail_tokens_ -= agreed;
    tables_.resize(shape.pages_per_block());
  }
  for (const PoolBlockId block : blocks) pool_->split_block(block);
  for (std::uint32_t i = 0; i < tables_.size(); ++i) {
    assert(rows[i] <= tokens);
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const PageId page = pool_->page_of(blocks[b], i);
      const std::uint32_t before = b * shape.block_size;
      if (before >= rows[i]) {
        pool_->release_page(page);
      } else {
        tables_[i].pages.push_back({page, std::min(shape.block_size, rows[i] - before)});
      }
    }
    tables_[i].slots += rows[i];
  }
  const auto first = blocks_.end() - static_cast<std::ptrdiff_t>(after().blocks.size());
  blocks_.erase(first, first + static_cast<std::ptrdiff_t>(blocks.size()));
  tail_tokens_ -= tokens;
}

void Sequence::truncate(std::uint32_t length) {
  if (ragged_) return truncate_pages(length);
  assert(length <= length_ && length_ - length <= tail_tokens_);
  const PageShape& shape = pool_->shape();
  const std::uint32_t tail = tail_tokens_ - (length_ - length);
  const std::span<const PoolBlockId> dropped = after().blocks.subspan(shape.pages_for(tail));
  pool_->release_blocks(dropped);
  blocks_.resize(blocks_.size() - dropped.size());
  tail_tokens_ = tail;
  length_ = length;
}

void Sequence::clear() {
  for (const Table& table : tables_) {
    for (const PageSlot& slot : table.pages) {
      if (pool_->is_split(pool_->block_of(slot.page))) pool_->release_page(slot.page);
    }
  }
  pool_->release_blocks(blocks_);
  blocks_ = {};
  tables_ = {};
  pages_in_use_ = {};
  length_ = prefix_tokens_ = tail_tokens_ = 0;
  diverged_ = ragged_ = lossy_ = false;
}

std::vector<PoolBlockId> Sequence::blocks(std::uint32_t tokens) const {
  if (tokens > (diverged_ ? prefix_tokens_ : tail_tokens_)) return {};
  const std::span<const PoolBlockId> first = std::span(blocks_).first(pool_->shape().pages_for(tokens));
  return {first.begin(), first.end()};
}

Sequence::Outline Sequence::outline() const {
  assert(!diverged_);
  Outline outline;
  outline.tables_ = tables_;
  outline.length_ = length_;
  outline.pages_ = pages();
  outline.ragged_ = ragged_;
  outline.lossy_ = lossy_;
  return outline;
}

Status Sequence::lay_out(const Outline& outline) {
  assert(length_ == 0 && blocks_.empty() && !ragged_ && !diverged_);
  if (!outline.ragged_) {
    SHALE_TRY(append(outline.length_));
    lossy_ = outline.lossy_;
    return {};
  }
  if (pool_->pages_free() < outline.pages()) {
    return fail(ErrorCode::kFull, "a sequence of {} pages does not fit the block pool, where {} are free",
                outline.pages(), pool_->pages_free());
  }
  tables_ = outline.tables_;
  for (Table& table : tables_) {
    for (PageSlot& slot : table.pages) slot.page = *pool_->allocate_page();
  }
  length_ = outline.length_;
  ragged_ = true;
  lossy_ = outline.lossy_;
  return {};
}

Status Sequence::check_table(std::uint32_t index) const {
  const Table& table = tables_[index];
  const std::uint32_t block_size = pool_->shape().block_size;
  std::uint32_t slots = 0, holes = 0;
  for (const PageSlot& slot : table.pages) {
    if (slot.count == 0 || slot.count > block_size || slot.tokens() == 0) {
      return fail(ErrorCode::kInternal, "table {}: page {} counts {} of {} tokens, {} of them there", index, slot.page,
                  slot.count, block_size, slot.tokens());
    }
    if (pool_->page_references(slot.page) == 0)
      return fail(ErrorCode::kInternal, "table {}: page {} is free", index, slot.page);
    slots += slot.count;
    holes += slot.count - slot.tokens();
  }
  if (slots != table.slots || holes != table.holes) {
    return fail(ErrorCode::kInternal, "table {}: {} slots with {} holes, {} and {} counted", index, slots, holes,
                table.slots, table.holes);
  }
  if (!ragged_ && holes > 0) return fail(ErrorCode::kInternal, "table {}: {} holes", index, holes);
  const std::size_t numbers = ragged_ ? table.pages.size() * block_size : 0;
  if (table.positions.size() != numbers || table.notes.size() != numbers) {
    return fail(ErrorCode::kInternal, "table {}: {} positions for {} slots", index, table.positions.size(), numbers);
  }
  return {};
}

// Every whole block is one of those that are held, in order, and every head uses as much of it as is counted.
Status Sequence::check_blocks() const {
  std::vector<std::uint32_t> pages_in_use(blocks_.size());
  for (std::uint32_t i = 0; i < pool_->shape().pages_per_block(); ++i) {
    std::size_t block = 0;
    for (const PageSlot slot : table(i / pool_->shape().kv_heads, i % pool_->shape().kv_heads).pages) {
      if (pool_->is_split(pool_->block_of(slot.page))) continue;
      while (block < blocks_.size() && slot.page != pool_->page_of(blocks_[block], i)) ++block;
      if (block == blocks_.size()) {
        return fail(ErrorCode::kInternal, "table {}: page {} is of no block of the sequence", i, slot.page);
      }
      ++pages_in_use[block++];
    }
  }
  const std::vector<std::uint32_t> by_all(blocks_.size(), pool_->shape().pages_per_block());
  if (pages_in_use != (ragged_ ? pages_in_use_ : by_all))
    return fail(ErrorCode::kInternal, "heads use other pages of {} blocks than are counted", blocks_.size());
  return {};
}

Status Sequence::check_integrity() const {
  const PageShape& shape = pool_->shape();
  if (tables_.size() != (diverged_ || ragged_ ? shape.pages_per_block() : 0))
    return fail(ErrorCode::kInternal, "{} tables by head", tables_.size());
  const std::uint32_t agreeing = prefix_tokens_ + tail_tokens_;
  if (diverged_ ? agreeing > length_ : agreeing != (ragged_ ? 0 : length_)) {
    return fail(ErrorCode::kInternal, "{} + {} agreeing tokens in a length of {}", prefix_tokens_, tail_tokens_,
                length_);
  }
  if (!diverged_ && !ragged_ && blocks_.size() != shape.pages_for(length_))
    return fail(ErrorCode::kInternal, "{} blocks for {} tokens", blocks_.size(), length_);
  for (std::uint32_t i = 0; i < tables_.size(); ++i) SHALE_TRY(check_table(i));
  return check_blocks();
}

}  // namespace shale
