// Attention over pages: reads K and V once per KV head for all its query heads, online softmax, fp32 accumulators, no
// score matrix. Memory per call is linear in the tokens of the query tile.
#pragma once

#include <cstdint>
#include <span>

#include "core/executor.h"
#include "paging/sequence.h"

namespace shale {

// One sequence's queries of one layer. Query i (of `queries`) sees the first tokens − queries + i + 1 tokens of each
// head's table, in table order.
struct AttentionWork {
  std::span<const HeadTable> tables;  // one per KV head
  const float* queries = nullptr;     // [query_count][query_heads][head_dim], rows query_stride floats apart
  float* output = nullptr;            // as queries
  std::uint32_t query_count = 0;
  std::size_t query_stride = 0;  // floats between consecutive tokens
  std::size_t output_stride = 0;
};

struct AttentionShape {
  std::uint32_t query_heads, kv_heads, head_dim;
  float scale;  // 1/√d unless the architecture says otherwise
};

// Runs all works over the executor. Deterministic: the result does not depend on the number of threads.
void paged_attention(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works,
                     Executor& executor);
// The same in plain double-precision C++, for tests.
void paged_attention_reference(const PagePool& pool, const AttentionShape& shape, std::span<const AttentionWork> works);

// Writes the keys and values of `count` new tokens of one (layer, head) into their pages.
// keys, values: rows of head_dim floats, `stride` floats apart.
void write_kv(PagePool& pool, const Sequence& sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
              const float* keys, const float* values, std::size_t stride);

// Name of the instruction set that runs ("AVX3_SPR", "AVX2", …).
const char* attention_target();

}  // namespace shale
