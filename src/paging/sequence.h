// A sequence's tables: one block table while its heads agree, a table of pages for every (layer, KV head) where they do
// not.
//
//   heads agree              blocks
//   heads kept rows          blocks of the prefix │ each head's own pages │ blocks of the tail
//   ragged                   each head's own pages, with positions beside them
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "paging/compaction.h"
#include "paging/page_pool.h"
#include "paging/page_slot.h"

namespace shale {

// What the attention kernel walks: the tokens of one (layer, KV head) in the order of the table.
struct HeadTable {
  PageSlots pages;
  std::uint32_t tokens = 0;      // sum of the counts, holes included
  std::uint32_t pages_gone = 0;  // of an exact sequence: that left the table at its front, behind a window
};

// What dropping tokens, owning and compacting did, over all tables it looked at. Freed are pages that returned to the
// pool, and those of blocks that only others hold from then on; what was taken for it is subtracted.
struct PagingWork {
  std::uint64_t tokens_dropped = 0, slots_copied = 0, pages_freed = 0;
  PagingWork& operator+=(const PagingWork& other);
};

// Heads that agree (the usual case) share blocks, and their table is four bytes a block. A sequence that loaded tokens
// per head has an *overlay*: its heads have pages of their own for that span and agree again after it. A sequence that
// drops tokens while it lives is *ragged*: every head has single pages, and their tokens' positions are known. Movable
// (moved from, it may be destroyed or assigned to); gives back everything it holds when destroyed. Names say block for
// block. Not thread-safe.
class Sequence {
 public:
  explicit Sequence(PagePool& pool);
  ~Sequence();
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;

  // Another sequence with the same tokens, sharing every page; whoever appends first copies the shared last block.
  // Copies the tables, a pass over the blocks while heads agree.
  Sequence fork() const;

  const PagePool& pool() const { return *pool_; }
  PagePool& pool() { return *pool_; }
  // Logical length: the position of the next token. Never the number kept.
  std::uint32_t length() const { return length_; }
  HeadTable table(std::uint32_t layer, std::uint32_t head) const;
  // Pages of all tables, shared ones included.
  std::uint32_t pages() const;
  // These, table after table (layer · kv_heads + head).
  std::vector<PageId> page_ids() const;
  // Tokens that one head still holds: those of its table without the holes.
  std::uint32_t resident(std::uint32_t layer, std::uint32_t head) const;
  // True while tokens were dropped or stored lossily somewhere below.
  bool lossy() const { return lossy_; }

  // Allocates pages for `count` more tokens at positions length() …, in whole blocks, copying a shared last block first
  // (copy on write); once ragged in single pages, a shared last page being left as it is. The slots are counted in the
  // tables at once; the caller writes them with `appended`. kFull leaves the sequence as it was.
  Status append(std::uint32_t count);

  // Where the token with index `i` of the `count` last appended (by `append`) lies, for one (layer, head): page and
  // slot in it.
  struct Place {
    PageId page;
    std::uint32_t slot;
  };
  Place appended(std::uint32_t layer, std::uint32_t head, std::uint32_t i, std::uint32_t count) const;

  // Takes shared references to the first `tokens` tokens held by `blocks` (all full but the last). Requires an empty
  // sequence. The last block is shared too and copied on the next append.
  void adopt_prefix(std::span<const PoolBlockId> blocks, std::uint32_t tokens);
  // Takes shared references to full blocks, whose tokens come next. Requires a sequence that is not ragged and ends
  // with a full block.
  void append_blocks(std::span<const PoolBlockId> blocks);

  // Each head keeps the first `rows[layer · kv_heads + head]` slots of tokens [first_token, + tokens), which are whole
  // blocks of this sequence alone in the last span in which heads agree. The caller sees to which of the tokens these
  // are. Pages beyond return to the pool, the others stay where they are. The sequence is lossy from now on, and its
  // length is as it was. Several spans: in ascending order.
  void keep_rows(std::uint32_t first_token, std::uint32_t tokens, std::span<const std::uint32_t> rows);
  // All tokens are there, with changed values.
  void mark_lossy() { lossy_ = true; }

  // Drops the tokens at and after `length` (speculative or cancelled work). Only within the last span in which heads
  // agree. Once ragged only what was appended since tokens were last dropped or compacted.
  void truncate(std::uint32_t length);
  void clear();

  // The blocks of the first `tokens` tokens while all heads agree there; empty otherwise, and once ragged.
  std::vector<PoolBlockId> blocks(std::uint32_t tokens) const;
  // The blocks of tokens [first, + tokens), `first` the first of a block, in the last span in which heads agree.
  std::span<const PoolBlockId> last_blocks(std::uint32_t first, std::uint32_t tokens) const;

  // Gives every head a page table of its own, for as long as the sequence lives. Blocks that nobody else holds become
  // single pages; of those that others share, a page stays shared until it is dropped here. Requires that no head
  // kept rows of its own.
  void part();
  bool ragged() const { return ragged_; }
  // A ragged sequence's numbers, one a slot, [pages of the table][block_size]; those of holes and of unused slots mean
  // nothing. `notes` belong to whoever drops tokens: 0 when appended, moved along in compaction.
  std::span<const std::uint32_t> positions(std::uint32_t layer, std::uint32_t head) const;
  std::span<float> notes(std::uint32_t layer, std::uint32_t head);

  // Drops from a ragged sequence, per table (layer · kv_heads + head), the tokens in these slots, numbered as in
  // `positions`, none twice. Nothing is moved or written, so others that share the pages see no difference. A page
  // whose last token goes leaves the table, and returns to the pool unless others hold it. Makes the sequence lossy,
  // unless nobody would see the tokens anyway.
  PagingWork drop(std::span<const std::vector<std::uint32_t>> slots, bool visible = true);
  // The blocks of which somebody else holds pages, too, when this was last looked at: by `part`, `drop` or `own`.
  std::span<const PoolBlockId> shared_blocks() const { return std::span(blocks_).first(ragged_ ? blocks_.size() : 0); }
  // The free pages that `own` copies into; 0 where nobody else holds any page of a ragged sequence.
  std::uint32_t pages_to_own() const;
  // Makes a ragged lossy sequence the owner of what is left to it: its tokens in pages that others hold, too, are
  // copied, packed, into fresh pages, and those let go. Where the pool has no room for that, only what others have let
  // go of since is owned, where it lies.
  PagingWork own(Executor& executor);
  // Whether a ragged sequence's table holds its tokens in no more pages than these need, and without holes.
  bool packed(std::uint32_t layer, std::uint32_t head) const;
  // Closes the holes of some tables (layer · kv_heads + head), on the executor's threads. Tokens at and after position
  // `newest` are the newest round (for hole_fill).
  PagingWork compact(Compaction how, std::uint32_t newest, std::span<const std::uint32_t> tables, Executor& executor);

  // Whether heads kept rows of their own: tokens whose positions are not known here.
  bool has_overlay() const { return diverged_; }
  // What is left of a sequence without overlay once the bytes of its pages, in the order of its tables, were copied
  // elsewhere: enough to lay them out again.
  class Outline;
  Outline outline() const;
  // Gives an empty sequence tables as they were, on pages of its own with undefined contents. kFull leaves it empty.
  Status lay_out(const Outline& outline);

  Status check_integrity() const;

 private:
  // The overlay: a head's own pages, where heads do not agree.
  struct Table {
    std::vector<PageSlot> pages;
    std::uint32_t slots = 0;  // sum of the counts
    std::uint32_t holes = 0;
    std::vector<std::uint32_t> positions;  // of a ragged sequence, as are the notes
    std::vector<float> notes;
  };

  bool packed(const Table& table) const;
  static std::uint32_t pages_of(std::span<const Table> tables);
  // What all heads hold before the first span of which they kept rows, and after the last or without one.
  BlockRun before() const;
  BlockRun after() const;
  // The first `tokens` of the tail, whole blocks or all of it.
  void move_tail_to_tables(std::uint32_t tokens);
  void own_last_block();
  Status append_pages(std::uint32_t count);
  void truncate_pages(std::uint32_t length);
  // Whether nobody else holds the page.
  bool owns(PageId page) const;
  // Lets go of a page, or of the pages of blocks that are not shared any more and that no table has. The pages freed.
  std::uint32_t release(PageId page);
  std::uint32_t split_own_blocks();
  std::uint32_t pages_to_own(const Table& table) const;
  Table owned(const Table& table, std::span<const PageId> fresh) const;
  void copy_slots(Table& table, const SlotCopy& copy);
  Status check_table(std::uint32_t index) const;
  Status check_blocks() const;

  PagePool* pool_;
  std::vector<PoolBlockId> blocks_;          // whole ones, of each of which it holds a reference, in order
  std::vector<Table> tables_;                // layer · kv_heads + head; empty while heads agree
  std::vector<std::uint32_t> pages_in_use_;  // once ragged: of every block, the tables that still use a page of it
  std::uint32_t length_ = 0;
  std::uint32_t prefix_tokens_ = 0;  // tokens before the first of those, where heads agree
  std::uint32_t tail_tokens_ = 0;    // tokens after the last, where heads agree; all of them without one
  bool diverged_ = false;            // heads kept rows of their own
  bool ragged_ = false;
  bool lossy_ = false;
};

class Sequence::Outline {
 public:
  std::uint32_t length() const { return length_; }
  std::uint32_t pages() const { return pages_; }  // of all tables

 private:
  friend class Sequence;
  std::vector<Table> tables_;  // of a ragged sequence
  std::uint32_t length_ = 0, pages_ = 0;
  bool ragged_ = false, lossy_ = false;
};

}  // namespace shale
