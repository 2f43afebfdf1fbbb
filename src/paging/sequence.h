// A sequence's page tables: for every (layer, KV head) the pages of its tokens, in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "paging/page_pool.h"

namespace shale {

// One entry of a page table. Only the first `count` slots hold tokens; pages in the middle of a table may be partly
// filled (strata of a lossy entry start on a page of their own).
struct PageSlot {
  PageId page = 0;
  std::uint32_t count = 0;
};

// What the attention kernel walks: the tokens of one (layer, KV head) in the order of the table.
struct HeadTable {
  std::span<const PageSlot> pages;
  std::uint32_t tokens = 0;  // sum of the counts
};

// Heads that agree (the usual case) share slabs; a sequence that loaded or evicted tokens per head has pages of its own
// for that stretch and agrees again after it. Movable (moved from, it may be
// destroyed or assigned to); gives back everything it holds when destroyed.
// Not thread-safe.
class Sequence {
 public:
  explicit Sequence(PagePool& pool);
  ~Sequence();
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;

  // Another sequence with the same tokens, sharing every page; whoever appends first copies the shared last slab.
  Sequence fork() const;

  const PagePool& pool() const { return *pool_; }
  PagePool& pool() { return *pool_; }
  // Logical length: the position of the next token. Never the number kept.
  std::uint32_t length() const { return length_; }
  HeadTable table(std::uint32_t layer, std::uint32_t head) const;
  // True while tokens were dropped or stored lossily somewhere below.
  bool lossy() const { return lossy_; }

  // Makes room for `count` more tokens at positions length() …, in whole slabs, copying a shared last slab first (copy
  // on write). The slots are counted in the tables at once; the caller writes them with `slot`. kFull leaves the
  // sequence as it was.
  Status append(std::uint32_t count);

  // Where the token with index `i` of the `count` last appended (by `append`) lies, for one (layer, head): page and
  // slot in it.
  struct Place {
    PageId page;
    std::uint32_t slot;
  };
  Place appended(std::uint32_t layer, std::uint32_t head, std::uint32_t i, std::uint32_t count) const;

  // Takes shared references to the first `tokens` tokens held by `slabs` (all full but the last). Requires an empty
  // sequence. The last slab is shared too and copied on the next append.
  void adopt_prefix(std::span<const SlabId> slabs, std::uint32_t tokens);

  // Stratum: fresh single pages for `kept[layer · kv_heads + head]` tokens per head, starting on a page of their own.
  // The caller fills the pages (table order) and calls `advance` after the last stratum of an entry. kFull leaves the
  // sequence as it was.
  struct Stratum {
    std::vector<std::vector<PageId>> pages;  // per layer · kv_heads + head
  };
  Result<Stratum> append_stratum(std::span<const std::uint32_t> kept);
  // Lowers what one head holds of a stratum of this sequence to its first `kept` tokens (no more than it holds) and
  // gives back the pages that are not needed, in the table and in `stratum.pages`. For a decoder that learns only from
  // the stored positions how many tokens lie below a hit's end. Any stratum, in any order, before or after `advance`.
  void shrink_stratum(Stratum& stratum, std::uint32_t layer, std::uint32_t head, std::uint32_t kept);
  // After the last stratum of an entry: the entry's logical tokens. `lossy`: some head keeps fewer, or changed values.
  // After an `append` whose tokens were restored with changed values: `advance(0, true)`.
  void advance(std::uint32_t logical_tokens, bool lossy);

  // Drops the tokens at and after `length` (speculative or cancelled work). Only within the last stretch in which heads
  // agree: no stratum is cut.
  void truncate(std::uint32_t length);
  void clear();

  // The slabs of the first `tokens` tokens while all heads agree there; empty otherwise.
  std::vector<SlabId> slabs(std::uint32_t tokens) const;

  Status check_integrity() const;

 private:
  void add_slots(SlabId slab, std::uint32_t count);  // a whole slab, whose reference the sequence takes over
  void own_last_slab(SlabId copy);

  PagePool* pool_;
  std::vector<std::vector<PageSlot>> tables_;  // layer · kv_heads + head
  std::vector<std::uint32_t> kept_;            // tokens in each table
  std::vector<SlabId> slabs_;                  // whole slabs that this sequence holds one reference of, in order
  std::uint32_t length_ = 0;
  std::uint32_t prefix_tokens_ = 0;  // tokens before the first stratum, where heads agree
  std::uint32_t tail_tokens_ = 0;    // tokens after the last stratum, where heads agree; the prefix itself without one
  bool diverged_ = false;            // a stratum was appended
  bool lossy_ = false;
};

}  // namespace shale
