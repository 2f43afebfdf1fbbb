#include "model/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <memory>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/attention_kernels.h"

namespace shale {
namespace {

constexpr std::uint32_t kTileRows = 256;     // rows that share one conversion of keys and values
constexpr std::uint32_t kTileQueries = 64;   // and their queries: more would waste work on the diagonal
constexpr std::uint32_t kSplits = 16;        // spans of a context, for all tiles of a head together, at most
constexpr std::uint32_t kScorePadding = 16;  // read beyond the last score

// Into how many spans a context is cut: a few where it is short, so that a few KV heads occupy several threads; no more
// while spans are short, for each begins with cold pages.
std::uint32_t splits_of(std::uint32_t tokens, std::uint32_t tiles) {
  const std::uint32_t splits = std::max(std::min(tokens / 256, 4u), tokens / 2048);
  return std::clamp(splits, 1u, std::max(1u, kSplits / tiles));
}

// A tile of queries of one KV head. Its context is attended to in spans, each a task of its own; whichever task
// finishes last joins them, in their order. Tiles and spans follow from the work alone, so results do not depend on
// threads.
struct Tile {
  const AttentionWork* work;
  std::uint32_t head;
  AttentionRows rows;
  PageSlots slots;            // from the first that its first query sees to the last that its last one sees
  std::size_t first_slot;     // of the table
  std::uint32_t first_token;  // of the first slot
  std::uint32_t first_query;
  std::uint32_t splits;
  std::size_t partials;  // floats into the call's scratch, for tiles of several spans
  std::size_t scores;    // floats into the call's scratch, of a single query whose scores are kept

  std::size_t slots_per_split() const { return (slots.size() + splits - 1) / splits; }
};

struct Task {
  std::uint32_t tile;
  std::uint32_t split;
};

class Attention {
 public:
  Attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works)
      : pool_(pool.host_view()), shape_(shape), kernels_(attention_kernels()) {
    for (const AttentionWork& work : works) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) add_tiles(work, head);
    }
    scratch_ = std::make_unique_for_overwrite<float[]>(scratch_floats_);
    finished_ = std::make_unique<std::atomic<std::uint32_t>[]>(tiles_.size());
    for (Tile& tile : tiles_) {
      if (!tile.work->received.empty()) tile.rows.scores = &scratch_[tile.scores];
    }
  }

  void run(Executor& executor) {
    executor.parallel_for(tasks_.size(), [this](std::size_t i) { run(tasks_[i]); });
  }

 private:
  void add_tiles(const AttentionWork& work, std::uint32_t head) {
    assert(work.received.empty() || work.query_count == 1);
    const std::uint32_t group = shape_.query_heads / shape_.kv_heads;
    const std::uint32_t tile_queries = std::clamp(kTileRows / group, 1u, kTileQueries);
    const std::uint32_t tiles = (work.query_count + tile_queries - 1) / tile_queries;
    const HeadTable& table = work.tables[head];
    assert(table.tokens >= work.query_count);
    std::size_t slots = table.pages.size();
    std::uint32_t tokens = table.tokens;       // held by the first `slots` slots
    for (std::uint32_t t = tiles; t-- > 0;) {  // the longest context first, to balance threads
      const std::uint32_t first = t * tile_queries;
      const std::uint32_t count = std::min(tile_queries, work.query_count - first);
      const std::uint32_t visible = table.tokens - work.query_count + first + 1;
      while (tokens - table.pages[slots - 1].count >= visible + count - 1) tokens -= table.pages[--slots].count;
      const AttentionRows rows{
          .queries = work.queries + first * work.query_stride + std::size_t{head} * group * shape_.head_dim,
          .query_stride = work.query_stride,
          .query_count = count,
          .group = group,
          .head_dim = shape_.head_dim,
          .scale = shape_.scale,
          .visible = visible,
          .window = work.window};
      std::size_t first_slot = 0;
      std::uint32_t first_token = 0;
      if (rows.hidden(0) > 0) {
        first_slot = slots;
        first_token = tokens;
        while (first_token > rows.hidden(0)) first_token -= table.pages[--first_slot].count;
      }
      const std::uint32_t splits = splits_of(tokens - first_token, tiles);
      for (std::uint32_t split = 0; split < splits; ++split) {
        tasks_.push_back({static_cast<std::uint32_t>(tiles_.size()), split});
      }
      const std::size_t partials = scratch_floats_;
      if (splits > 1) scratch_floats_ += splits * AttentionPartial::floats(rows.rows(), shape_.head_dim);
      tiles_.push_back({&work, head, rows, table.pages.subspan(first_slot, slots - first_slot), first_slot, first_token,
                        first, splits, partials, scratch_floats_});
      if (!work.received.empty()) {
        tiles_.back().rows.score_stride = table.tokens + kScorePadding;
        scratch_floats_ += group * tiles_.back().rows.score_stride;
      }
    }
  }

  void run(const Task& task) {
    const Tile& tile = tiles_[task.tile];
    const std::size_t floats = AttentionPartial::floats(tile.rows.rows(), shape_.head_dim);
    if (tile.splits == 1) {
      thread_local AlignedBuffer memory;
      if (memory.size() < floats * sizeof(float)) memory = AlignedBuffer(floats * sizeof(float));
      const auto partial =
          AttentionPartial::at(reinterpret_cast<float*>(memory.data()), tile.rows.rows(), shape_.head_dim);
      kernels_.attend(pool_, tile.rows, tile.slots, tile.first_token, partial);
      merge(tile, {&partial, 1});
      return;
    }
    std::array<AttentionPartial, kSplits> partials;
    for (std::uint32_t split = 0; split < tile.splits; ++split) {
      partials[split] =
          AttentionPartial::at(&scratch_[tile.partials + split * floats], tile.rows.rows(), shape_.head_dim);
    }
    const std::size_t first = std::min(task.split * tile.slots_per_split(), tile.slots.size());
    const std::size_t count = std::min(tile.slots_per_split(), tile.slots.size() - first);
    std::uint32_t first_token = tile.first_token;
    for (const PageSlot slot : tile.slots.first(first)) first_token += slot.count;
    kernels_.attend(pool_, tile.rows, tile.slots.subspan(first, count), first_token, partials[task.split]);
    if (finished_[task.tile].fetch_add(1, std::memory_order_acq_rel) + 1 == tile.splits) {
      merge(tile, std::span(partials).first(tile.splits));
    }
  }

  void merge(const Tile& tile, std::span<const AttentionPartial> partials) const {
    const std::size_t head = std::size_t{tile.head} * tile.rows.group;
    const AttentionWork& work = *tile.work;
    std::vector<float> own_log_sums;
    float* log_sums =
        work.log_sums ? work.log_sums + tile.first_query * std::size_t{shape_.query_heads} + head : nullptr;
    if (tile.rows.scores && !log_sums) {
      own_log_sums.resize(tile.rows.group);
      log_sums = own_log_sums.data();
    }
    kernels_.merge(tile.rows, partials, work.output + tile.first_query * work.output_stride + head * shape_.head_dim,
                   work.output_stride, log_sums, shape_.query_heads);
    if (tile.rows.scores) {
      AttentionRows rows = tile.rows;
      rows.scores += tile.first_token;
      const std::uint32_t page_tokens = pool_.shape().page_tokens;
      kernels_.add_received(rows, log_sums, tile.slots, page_tokens,
                            work.received[tile.head] + tile.first_slot * page_tokens);
    }
  }

  HostView pool_;
  const AttentionShape& shape_;
  AttentionKernels kernels_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::size_t scratch_floats_ = 0;
  std::unique_ptr<float[]> scratch_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> finished_;
};

}  // namespace

void paged_attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works,
                     Executor& executor) {
  assert(shape.head_dim == pool.shape().head_dim && shape.query_heads % shape.kv_heads == 0);
  Attention(pool, shape, works).run(executor);
}

const char* attention_target() { return attention_kernels().target; }

}  // namespace shale
