// Attention over pages: reads K and V once per KV head for all its query heads, online softmax, fp32 accumulators, no
// score matrix. Memory per call is linear in the tokens of the query tile.
#pragma once

#include <cstdint>
#include <span>

#include "core/executor.h"
#include "paging/sequence.h"

namespace shale {

// One sequence's queries of one layer. Query i (of `queries`) sees the first tokens − queries + i + 1 slots of each
// head's table, in table order, without the holes; with a window only the last `window` of them. In an exact sequence a
// slot's index is its token's position, so that is a sliding window by position. Where tokens were dropped and their
// slots closed, older ones stay in sight for longer.
struct AttentionWork {
  std::span<const HeadTable> tables;  // one per KV head
  const float* queries = nullptr;     // [query_count][query_heads][head_dim], rows query_stride floats apart
  float* output = nullptr;            // as queries
  std::uint32_t query_count = 0;
  std::size_t query_stride = 0;  // floats between consecutive tokens
  std::size_t output_stride = 0;
  std::uint32_t window = 0;  // 0: none
  float* log_sums =
      nullptr;  // where to leave log Σ e^score of every query and head, [query_count][query_heads], or null
  // Sums for a single query: per KV head, [pages of the table][block_size], to which the attention that each slot
  // receives is added (mean over the KV head's query heads); empty where it is not asked for. Costs no second pass over
  // the keys.
  std::span<float* const> received = {};
};

struct AttentionShape {
  std::uint32_t query_heads, kv_heads, head_dim;
  float scale;  // 1/√d unless the architecture says otherwise
};

// Runs all works over the executor. A query's output depends on its own context alone, bit for bit: neither on the
// number of threads nor on what is computed beside it, of its own sequence or of others. Sequences that dropped tokens
// or are int8 are independent of threads only.
void paged_attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works,
                     Executor& executor);

// The attention that tokens receive from queries whose log_sums paged_attention left: the mean over each KV head's
// query heads, summed over the queries (kSum), or the largest over both (kLargest).
struct ReceivedAttention {
  enum class Kind { kSum, kLargest };
  Kind kind = Kind::kSum;
  std::uint32_t first = 0, tokens = 0;  // of each head's table
  // Token first + i of a head is received[head · stride + i]; what is there is added to, or raised.
  float* received = nullptr;
  std::size_t stride = 0;
};
// `work.output` is not looked at. A second product with the keys and no values: about half of attention itself.
// Deterministic, too.
void received_attention(const PagePool& pool, const AttentionShape& shape, const AttentionWork& work,
                        const ReceivedAttention& to, Executor& executor);

// Attention in plain double-precision C++, for tests. Leaves no log_sums.
void paged_attention_reference(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works);

// Writes the keys and values of `count` new tokens of one (layer, head) into their pages.
// keys, values: rows of head_dim floats, `stride` floats apart.
void write_kv(PagePool& pool, const Sequence& sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
              const float* keys, const float* values, std::size_t stride);

// Name of the instruction set that runs ("AVX3_SPR", "AVX2", …).
const char* attention_target();

}  // namespace shale
