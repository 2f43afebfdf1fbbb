// Load and compute meet: a prefix is computed from its front while its chunks are loaded from the back, until nothing
// lies between (Cake, arXiv 2410.03065). A load that takes as long as computing brings the first token in half of the
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/cost_model.h"
#include "core/clock.h"
#include "core/executor.h"
#include "paging/sequence.h"
#include "store/store.h"

namespace shale {

// Exact blocks of a chain that are loaded, the last chunk first. Not thread-safe. What it is given outlives it.
class Meeting {
 public:
  struct Context {
    Store& store;
    PagePool& pool;
    std::span<Tier* const> tiers;  // the store's
    const CostModel& costs;
    const Clock& clock;
    StoreNeeds needs = {};  // exact
    std::uint32_t chunk_blocks = 16;
    std::string tenant = {};  // of the store
    double slowdown = 1;      // of computing (Backlog)
    // Frees blocks of the pool where so many are not free; false when it cannot. Null: frees none.
    std::function<bool(std::uint32_t blocks)> ensure_free = {};
  };

  // Takes the exact chunks that a look-up of `keys` found and that begin at or after block `computed`. `tokens` are the
  // chain's, to be compared with those that were saved.
  Meeting(const Context& context, std::span<const BlockKey> keys, std::span<const std::int32_t> tokens,
          const StoreLookup& found, std::uint32_t computed);

  // How long until all exact blocks from `computed` on are there, were both to begin now. `slowdown`: of computing.
  static double estimate_s(const CostModel& costs, const StoreLookup& found, std::uint32_t computed,
                           std::uint32_t block_tokens, double slowdown = 1);

  // Decodes what has come, for about `budget_s`, and asks for the next chunks that come sooner than computing would.
  // Computing has reached block `computed`, and goes on after `before_s` of other prompts. Never waits. True when it
  // did anything.
  bool poll(Executor& executor, double budget_s, std::uint32_t computed, double before_s = 0);
  // The first block that is there or on its way: computing ends here. It falls as chunks are asked for, and rises where
  // one could not be read.
  std::uint32_t limit() const;
  // Whether everything from the limit on has come.
  bool arrived() const;
  // Bits: the tiers from which a chunk is long overdue.
  std::uint32_t overdue() const;
  // Gives up what has not come: computing goes up to the first block behind which all is there.
  void give_up();
  // What a tier brought: logical tokens, and about the bytes read for them.
  struct Brought {
    std::uint32_t tokens = 0;
    std::uint64_t bytes = 0;
  };
  // Appends what came to a sequence that ends at the limit, once. Requires arrived(). Returns what came by tier.
  std::vector<Brought> join(Sequence& sequence);

  // Blocks of the pool that it holds.
  std::uint32_t blocks_held() const;

 private:
  struct Piece {
    std::uint32_t first_block = 0, blocks = 0, tier = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<Sequence> pages = {};  // while it is being loaded, and after
    std::unique_ptr<StoreLoad> load = {};  // null once it is there
    double late_at_s = 0;
  };

  bool pays(const Piece& piece, std::uint32_t computed, double before_s) const;
  bool ask(Piece& piece);
  void lose(std::size_t piece);

  Context context_;
  std::vector<BlockKey> keys_;
  std::vector<std::int32_t> tokens_;
  std::vector<Piece> pieces_;  // in order of blocks
  std::size_t asked_;          // pieces [asked_, …) were asked for
  bool ended_ = false;         // no more are asked for
  std::uint32_t end_block_ = 0;
};

}  // namespace shale
