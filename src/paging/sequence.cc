#include "paging/sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace shale {

Sequence::Sequence(PagePool& pool) : pool_(&pool), tables_(pool.shape().pages_per_slab()) {}

Sequence::~Sequence() { clear(); }

Sequence::Sequence(Sequence&& other) noexcept : pool_(other.pool_) { *this = std::move(other); }

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  tables_ = std::exchange(other.tables_, {});
  slabs_ = std::exchange(other.slabs_, {});
  length_ = std::exchange(other.length_, 0);
  prefix_tokens_ = std::exchange(other.prefix_tokens_, 0);
  tail_tokens_ = std::exchange(other.tail_tokens_, 0);
  diverged_ = std::exchange(other.diverged_, false);
  parted_ = std::exchange(other.parted_, false);
  lossy_ = std::exchange(other.lossy_, false);
  return *this;
}

Sequence Sequence::fork() const {
  Sequence copy(*pool_);
  copy.tables_ = tables_;
  copy.slabs_ = slabs_;
  copy.length_ = length_;
  copy.prefix_tokens_ = prefix_tokens_;
  copy.tail_tokens_ = tail_tokens_;
  copy.diverged_ = diverged_;
  copy.parted_ = parted_;
  copy.lossy_ = lossy_;
  for (const HeldSlab& held : slabs_) pool_->retain_slab(held.slab);
  for (const Table& table : tables_) {
    for (const PageSlot& slot : table.pages) {
      if (pool_->is_split(pool_->slab_of(slot.page))) pool_->retain_page(slot.page);
    }
  }
  return copy;
}

HeadTable Sequence::table(std::uint32_t layer, std::uint32_t head) const {
  const Table& table = tables_[pool_->shape().page_index(layer, head)];
  return {table.pages, table.slots};
}

std::uint32_t Sequence::pages_of(std::span<const Table> tables) {
  std::size_t pages = 0;
  for (const Table& table : tables) pages += table.pages.size();
  return static_cast<std::uint32_t>(pages);
}

std::uint32_t Sequence::pages() const { return pages_of(tables_); }

std::uint32_t Sequence::resident(std::uint32_t layer, std::uint32_t head) const {
  const Table& table = tables_[pool_->shape().page_index(layer, head)];
  return table.slots - table.holes;
}

void Sequence::add_slots(SlabId slab, std::uint32_t count) {
  slabs_.push_back({slab, pool_->shape().pages_per_slab()});
  for (std::uint32_t i = 0; i < tables_.size(); ++i) {
    tables_[i].pages.push_back({pool_->page_of(slab, i), count});
    tables_[i].slots += count;
  }
  tail_tokens_ += count;
  length_ += count;
}

void Sequence::own_last_slab(SlabId copy) {
  pool_->copy_slab(slabs_.back().slab, copy);
  pool_->release_slab(slabs_.back().slab);
  slabs_.back().slab = copy;
  for (std::uint32_t i = 0; i < tables_.size(); ++i) tables_[i].pages.back().page = pool_->page_of(copy, i);
}

Status Sequence::append(std::uint32_t count) {
  if (parted_) return append_pages(count);
  const PageShape& shape = pool_->shape();
  const std::uint32_t used = tail_tokens_ % shape.page_tokens;
  const std::uint32_t fits = used == 0 ? 0 : std::min(count, shape.page_tokens - used);
  const bool copies = fits > 0 && pool_->references(slabs_.back().slab) > 1;
  const std::uint32_t needed = shape.pages_for(count - fits) + (copies ? 1 : 0);
  if (pool_->slabs_free() < needed) {
    return fail(ErrorCode::kFull, "{} more tokens need {} slabs of the page pool, {} are free", count, needed,
                pool_->slabs_free());
  }
  if (copies) own_last_slab(*pool_->allocate_slab());
  if (fits > 0) {
    for (Table& table : tables_) {
      table.pages.back().count += fits;
      table.slots += fits;
    }
    tail_tokens_ += fits;
    length_ += fits;
  }
  for (std::uint32_t left = count - fits; left > 0;) {
    const std::uint32_t slots = std::min(left, shape.page_tokens);
    add_slots(*pool_->allocate_slab(), slots);
    left -= slots;
  }
  return {};
}

Sequence::Place Sequence::appended(std::uint32_t layer, std::uint32_t head, std::uint32_t i,
                                   std::uint32_t count) const {
  assert(i < count && (parted_ || count <= tail_tokens_));
  const std::vector<PageSlot>& pages = tables_[pool_->shape().page_index(layer, head)].pages;
  std::uint32_t from_end = count - i;
  auto slot = pages.rbegin();
  for (; from_end > slot->count; ++slot) from_end -= slot->count;
  return {slot->page, slot->count - from_end};
}

void Sequence::adopt_prefix(std::span<const SlabId> slabs, std::uint32_t tokens) {
  assert(length_ == 0 && slabs_.empty() && !diverged_ && !parted_);
  assert(slabs.size() == pool_->shape().pages_for(tokens));
  for (const SlabId slab : slabs) {
    pool_->retain_slab(slab);
    add_slots(slab, std::min(pool_->shape().page_tokens, tokens - length_));
  }
}

Result<Sequence::Stratum> Sequence::append_stratum(std::span<const std::uint32_t> kept) {
  assert(kept.size() == tables_.size() && !parted_);
  const PageShape& shape = pool_->shape();
  std::size_t needed = 0;
  for (const std::uint32_t tokens : kept) needed += shape.pages_for(tokens);
  if (pool_->pages_free() < needed) {
    return fail(ErrorCode::kFull, "a stratum needs {} pages of the page pool, {} are free", needed,
                pool_->pages_free());
  }
  if (!diverged_) prefix_tokens_ = tail_tokens_;
  diverged_ = true;
  tail_tokens_ = 0;
  Stratum stratum{std::vector<std::vector<PageId>>(tables_.size())};
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    for (std::uint32_t left = kept[i]; left > 0;) {
      const std::uint32_t count = std::min(left, shape.page_tokens);
      const PageId page = *pool_->allocate_page();
      tables_[i].pages.push_back({page, count});
      stratum.pages[i].push_back(page);
      left -= count;
    }
    tables_[i].slots += kept[i];
  }
  return stratum;
}

void Sequence::shrink_stratum(Stratum& stratum, std::uint32_t layer, std::uint32_t head, std::uint32_t kept) {
  const PageShape& shape = pool_->shape();
  const std::uint32_t index = shape.page_index(layer, head);
  std::vector<PageId>& pages = stratum.pages[index];
  if (pages.empty()) return;
  Table& table = tables_[index];
  const auto first = std::ranges::find(table.pages, pages.front(), &PageSlot::page);
  assert(first != table.pages.end());
  const auto end = first + static_cast<std::ptrdiff_t>(pages.size());
  std::uint32_t left = kept;
  for (auto slot = first; slot != end; ++slot) {
    const std::uint32_t count = std::min(left, slot->count);
    table.slots -= slot->count - count;
    left -= count;
    slot->count = count;
    if (count == 0) pool_->release_page(slot->page);
  }
  assert(left == 0);
  const std::uint32_t remaining = shape.pages_for(kept);
  table.pages.erase(first + remaining, end);
  pages.resize(remaining);
}

void Sequence::advance(std::uint32_t logical_tokens, bool lossy) {
  assert(logical_tokens == 0 || (diverged_ && tail_tokens_ == 0));
  length_ += logical_tokens;
  lossy_ = lossy_ || lossy;
}

void Sequence::truncate(std::uint32_t length) {
  if (parted_) return truncate_pages(length);
  assert(length <= length_ && length_ - length <= tail_tokens_);
  while (length_ > length) {
    const std::uint32_t used = (tail_tokens_ - 1) % pool_->shape().page_tokens + 1;
    const std::uint32_t drop = std::min(used, length_ - length);
    for (Table& table : tables_) {
      table.pages.back().count -= drop;
      if (drop == used) table.pages.pop_back();
      table.slots -= drop;
    }
    if (drop == used) {
      pool_->release_slab(slabs_.back().slab);
      slabs_.pop_back();
    }
    tail_tokens_ -= drop;
    length_ -= drop;
  }
}

void Sequence::clear() {
  for (Table& table : tables_) {
    for (const PageSlot& slot : table.pages) {
      if (pool_->is_split(pool_->slab_of(slot.page))) pool_->release_page(slot.page);
    }
    table = {};
  }
  for (const HeldSlab& held : slabs_) pool_->release_slab(held.slab);
  slabs_.clear();
  length_ = prefix_tokens_ = tail_tokens_ = 0;
  diverged_ = parted_ = lossy_ = false;
}

std::vector<SlabId> Sequence::slabs(std::uint32_t tokens) const {
  if (parted_ || tokens > (diverged_ ? prefix_tokens_ : tail_tokens_)) return {};
  std::vector<SlabId> slabs;
  for (std::uint32_t i = 0; i < pool_->shape().pages_for(tokens); ++i) slabs.push_back(slabs_[i].slab);
  return slabs;
}

Sequence::Outline Sequence::outline() const {
  assert(!diverged_);
  Outline outline;
  outline.tables_ = tables_;
  outline.length_ = length_;
  outline.parted_ = parted_;
  outline.lossy_ = lossy_;
  return outline;
}

Status Sequence::lay_out(const Outline& outline) {
  assert(length_ == 0 && slabs_.empty() && !parted_ && !diverged_);
  if (!outline.parted_) {
    SHALE_TRY(append(outline.length_));
    lossy_ = outline.lossy_;
    return {};
  }
  if (pool_->pages_free() < outline.pages()) {
    return fail(ErrorCode::kFull, "a sequence of {} pages does not fit the page pool, of which {} are free",
                outline.pages(), pool_->pages_free());
  }
  tables_ = outline.tables_;
  for (Table& table : tables_) {
    for (PageSlot& slot : table.pages) slot.page = *pool_->allocate_page();
  }
  length_ = outline.length_;
  parted_ = true;
  lossy_ = outline.lossy_;
  return {};
}

Status Sequence::check_integrity() const {
  const std::uint32_t page_tokens = pool_->shape().page_tokens;
  std::vector<std::uint32_t> slab_pages(slabs_.size());
  for (std::uint32_t i = 0; i < tables_.size(); ++i) {
    std::uint32_t slots = 0, holes = 0;
    std::size_t whole = 0;
    for (const PageSlot& slot : tables_[i].pages) {
      if (slot.count == 0 || slot.count > page_tokens || slot.tokens() == 0) {
        return fail(ErrorCode::kInternal, "table {}: page {} counts {} of {} tokens, {} of them there", i, slot.page,
                    slot.count, page_tokens, slot.tokens());
      }
      if (pool_->page_references(slot.page) == 0)
        return fail(ErrorCode::kInternal, "table {}: page {} is free", i, slot.page);
      if (!pool_->is_split(pool_->slab_of(slot.page))) {
        while (whole < slabs_.size() && slot.page != pool_->page_of(slabs_[whole].slab, i)) ++whole;
        if (whole == slabs_.size()) {
          return fail(ErrorCode::kInternal, "table {}: page {} is of no slab of the sequence", i, slot.page);
        }
        ++slab_pages[whole++];
      }
      slots += slot.count;
      holes += slot.count - slot.tokens();
    }
    const Table& table = tables_[i];
    if (slots != table.slots || holes != table.holes) {
      return fail(ErrorCode::kInternal, "table {}: {} slots with {} holes, {} and {} counted", i, slots, holes,
                  table.slots, table.holes);
    }
    if (!parted_ && holes > 0) return fail(ErrorCode::kInternal, "table {}: {} holes", i, holes);
    if (!diverged_ && !parted_ && slots != length_)
      return fail(ErrorCode::kInternal, "table {}: {} tokens of {}", i, slots, length_);
    const std::size_t numbers = parted_ ? table.pages.size() * page_tokens : 0;
    if (table.positions.size() != numbers || table.notes.size() != numbers) {
      return fail(ErrorCode::kInternal, "table {}: {} positions for {} slots", i, table.positions.size(), numbers);
    }
  }
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    if (slab_pages[i] != slabs_[i].pages || (!parted_ && slab_pages[i] != tables_.size())) {
      return fail(ErrorCode::kInternal, "slab {}: {} pages, {} counted", slabs_[i].slab, slab_pages[i],
                  slabs_[i].pages);
    }
  }
  if (!parted_ && prefix_tokens_ + tail_tokens_ > length_) {
    return fail(ErrorCode::kInternal, "{} + {} agreeing tokens in a length of {}", prefix_tokens_, tail_tokens_,
                length_);
  }
  return {};
}

}  // namespace shale
