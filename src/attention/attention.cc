#include "attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attention/attention_kernels.h"
#include "core/aligned_buffer.h"

namespace shale {
namespace {

constexpr std::uint32_t kTileRows = 256;     // rows that share one conversion of keys and values
constexpr std::uint32_t kTileQueries = 64;   // and their queries: more would waste work on the diagonal
constexpr std::uint32_t kSpanTokens = 512;   // a multiple of kBlockTokens; each begins with cold pages
constexpr std::uint32_t kScorePadding = 16;  // read beyond the last score
// Spans are tasks of their own while there are fewer tiles a thread than this, and while what they leave is no more
// floats than that.
constexpr std::size_t kTilesPerThread = 4;
constexpr std::size_t kScratchFloatsMax = std::size_t{1} << 24;

// A tile of queries of one KV head. Its context is attended to in spans, whose borders lie at multiples of kSpanTokens
// of the sequence's positions, and what they leave is folded in their order, by the one task that has all of them or by
// whichever finishes last. So a row's output depends neither on threads nor on the rows beside it.
struct Tile {
  const AttentionWork* work;
  std::uint32_t head;
  AttentionRows rows;
  PageSlots slots;            // from the first that its first query sees to the last that its last one sees
  std::size_t first_slot;     // of the table
  std::size_t position;       // of the first slot, in pages
  std::uint32_t first_token;  // of the first slot, of the table
  std::uint32_t first_query;
  std::uint32_t spans;
  std::size_t partials = 0;  // floats into the call's scratch, where spans are tasks
  std::size_t scores = 0;    // likewise, of a single query whose scores are kept
};

// A span of a tile, or all of them.
struct Task {
  std::uint32_t tile;
  std::uint32_t index;
  std::optional<AttentionSpan> span;
};

class Attention {
 public:
  Attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works,
            std::size_t threads)
      : pool_(pool.host_view()),
        shape_(shape),
        kernels_(attention_kernels()),
        span_pages_(kSpanTokens / pool_.shape().block_size),
        block_pages_(kBlockTokens / pool_.shape().block_size) {
    for (const AttentionWork& work : works) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) add_tiles(work, head);
    }
    add_tasks(threads);
    thread_local AlignedBuffer memory;  // fresh memory would cost a page fault every 4 KiB, call after call
    scratch_ = memory.floats(scratch_floats_);
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
      const std::size_t position = table.pages_gone + first_slot;
      const std::size_t spans = (position % span_pages_ + slots - first_slot + span_pages_ - 1) / span_pages_;
      tiles_.push_back({&work, head, rows, table.pages.subspan(first_slot, slots - first_slot), first_slot, position,
                        first_token, first, static_cast<std::uint32_t>(spans)});
      if (!work.received.empty()) {
        tiles_.back().rows.score_stride = table.tokens + kScorePadding;
        tiles_.back().scores = take_scratch(group * tiles_.back().rows.score_stride);
      }
    }
  }

  void add_tasks(std::size_t threads) {
    std::size_t floats = 0;
    for (const Tile& tile : tiles_) floats += tile.spans * partial_floats(tile);
    const bool whole = tiles_.size() >= kTilesPerThread * threads || floats > kScratchFloatsMax;
    for (std::uint32_t t = 0; t < tiles_.size(); ++t) {
      Tile& tile = tiles_[t];
      if (whole || tile.spans == 1) {
        tasks_.push_back({t, 0, std::nullopt});
        continue;
      }
      tile.partials = take_scratch(tile.spans * partial_floats(tile));
      for_each_span(tile, [&](std::uint32_t index, const AttentionSpan& span) { tasks_.push_back({t, index, span}); });
    }
  }

  std::size_t take_scratch(std::size_t floats) { return std::exchange(scratch_floats_, scratch_floats_ + floats); }
  std::size_t partial_floats(const Tile& tile) const {
    return AttentionPartial::floats(tile.rows.rows(), shape_.head_dim);
  }
  AttentionPartial partial_at(const Tile& tile, float* memory) const {
    return AttentionPartial::at(memory, tile.rows.rows(), shape_.head_dim);
  }

  // Calls visit(index, span) for each span of the tile, in order.
  template <class Visit>
  void for_each_span(const Tile& tile, const Visit& visit) const {
    std::size_t first = 0;
    std::uint32_t first_token = tile.first_token;
    for (std::uint32_t index = 0; index < tile.spans; ++index) {
      const std::size_t position = tile.position + first;
      const std::size_t count = std::min(span_pages_ - position % span_pages_, tile.slots.size() - first);
      const PageSlots slots = tile.slots.subspan(first, count);
      const auto lead = static_cast<std::uint32_t>(position % block_pages_) * pool_.shape().block_size;
      visit(index, AttentionSpan{slots, first_token, lead});
      first += count;
      for (const PageSlot slot : slots) first_token += slot.count;
    }
  }

  void run(const Task& task) {
    const Tile& tile = tiles_[task.tile];
    if (!task.span) return run_whole(tile);
    float* partials = &scratch_[tile.partials];
    const std::size_t floats = partial_floats(tile);
    kernels_.attend(pool_, tile.rows, *task.span, partial_at(tile, partials + task.index * floats));
    if (finished_[task.tile].fetch_add(1, std::memory_order_acq_rel) + 1 < tile.spans) return;
    const AttentionPartial all = partial_at(tile, partials);
    for (std::uint32_t i = 1; i < tile.spans; ++i) {
      kernels_.fold(tile.rows, partial_at(tile, partials + i * floats), all);
    }
    finish(tile, all);
  }

  void run_whole(const Tile& tile) const {
    thread_local AlignedBuffer memory;
    const std::size_t floats = round_up(partial_floats(tile), 16);
    float* const first = memory.floats(2 * floats);
    const AttentionPartial all = partial_at(tile, first), next = partial_at(tile, first + floats);
    for_each_span(tile, [&](std::uint32_t index, const AttentionSpan& span) {
      kernels_.attend(pool_, tile.rows, span, index == 0 ? all : next);
      if (index > 0) kernels_.fold(tile.rows, next, all);
    });
    finish(tile, all);
  }

  void finish(const Tile& tile, const AttentionPartial& all) const {
    const std::size_t head = std::size_t{tile.head} * tile.rows.group;
    const AttentionWork& work = *tile.work;
    std::vector<float> own_log_sums;
    float* log_sums =
        work.log_sums ? work.log_sums + tile.first_query * std::size_t{shape_.query_heads} + head : nullptr;
    if (tile.rows.scores && !log_sums) {
      own_log_sums.resize(tile.rows.group);
      log_sums = own_log_sums.data();
    }
    kernels_.finish(tile.rows, all, work.output + tile.first_query * work.output_stride + head * shape_.head_dim,
                    work.output_stride, log_sums, shape_.query_heads);
    if (tile.rows.scores) {
      AttentionRows rows = tile.rows;
      rows.scores += tile.first_token;
      const std::uint32_t block_size = pool_.shape().block_size;
      kernels_.add_received(rows, log_sums, tile.slots, block_size,
                            work.received[tile.head] + tile.first_slot * block_size);
    }
  }

  HostView pool_;
  const AttentionShape& shape_;
  AttentionKernels kernels_;
  const std::size_t span_pages_, block_pages_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::size_t scratch_floats_ = 0;
  float* scratch_ = nullptr;
  std::unique_ptr<std::atomic<std::uint32_t>[]> finished_;
};

}  // namespace

void paged_attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works,
                     Executor& executor) {
  assert(shape.head_dim == pool.shape().head_dim && shape.query_heads % shape.kv_heads == 0);
  Attention(pool, shape, works, executor.threads()).run(executor);
}

const char* attention_target() { return attention_kernels().target; }

}  // namespace shale
