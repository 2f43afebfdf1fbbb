// The kernels behind paged_attention: one span of one KV head's table against a few queries. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "paging/page_pool.h"
#include "paging/sequence.h"

namespace shale {

// Rows are (query, query head of the KV head), query-major; kernels work on whole groups of kRowGroup of them.
inline constexpr std::uint32_t kRowGroup = 6;
constexpr std::uint32_t padded_rows(std::uint32_t rows) { return (rows + kRowGroup - 1) / kRowGroup * kRowGroup; }

// Tokens are attended to in blocks of so many, which begin at multiples of it: a token has the same lane of the same
// block whichever kernel reads it, so that a row comes out bit for bit the same beside any other rows.
inline constexpr std::uint32_t kBlockTokens = 64;

// What a span of the context contributes to the rows: a softmax that is not divided yet. Exponents are base 2.
struct AttentionPartial {
  float* sums = nullptr;     // [padded rows][head_dim]: Σ 2^(score - peak) · value
  float* peaks = nullptr;    // [padded rows]: the largest score
  float* weights = nullptr;  // [padded rows]: Σ 2^(score - peak); 0 where a row sees nothing of the span

  static std::size_t floats(std::uint32_t rows, std::uint32_t head_dim) {
    return std::size_t{padded_rows(rows)} * (head_dim + 2);
  }
  static AttentionPartial at(float* memory, std::uint32_t rows, std::uint32_t head_dim) {
    float* peaks = memory + std::size_t{padded_rows(rows)} * head_dim;
    return {memory, peaks, peaks + padded_rows(rows)};
  }
};

// Queries of one KV head, consecutive in their sequence.
struct AttentionRows {
  const float* queries = nullptr;  // of the first query, first query head of the KV head
  std::size_t query_stride = 0;
  std::uint32_t query_count = 0;
  std::uint32_t group = 0;  // query heads of the KV head
  std::uint32_t head_dim = 0;
  float scale = 1;
  std::uint32_t visible = 0;  // slots of the table that the first query sees; each next one sees one more
  std::uint32_t window = 0;   // and of those only the last so many; 0: all
  // Where a single query leaves its scores as exponents of 2, [group][score_stride], a slot of the table after the
  // other, minus infinity for holes and behind the window; or null.
  float* scores = nullptr;
  std::size_t score_stride = 0;

  std::uint32_t rows() const { return query_count * group; }
  // Tokens at the start of the table that are behind the query's window.
  std::uint32_t hidden(std::uint32_t query) const {
    return window && visible + query > window ? visible + query - window : 0;
  }
};

// Consecutive pages of a table.
struct AttentionSpan {
  PageSlots slots;
  std::uint32_t first_token = 0;  // of the table; its page is one that the first query's window reaches
  std::uint32_t lead = 0;         // slots of the first page's block of kBlockTokens before that page
};

struct AttentionKernels {
  // Fills `partial` from the tokens of a span.
  void (*attend)(const HostView& pool, const AttentionRows& rows, const AttentionSpan& span,
                 const AttentionPartial& partial);
  // Adds the next span's partial to that of all before it.
  void (*fold)(const AttentionRows& rows, const AttentionPartial& next, const AttentionPartial& into);
  // Divides, and writes [query_count][group][head_dim], rows output_stride apart; where `log_sums` is not null also
  // each row's log Σ e^score, [query_count][group], rows log_sum_stride apart.
  void (*finish)(const AttentionRows& rows, const AttentionPartial& partial, float* output, std::size_t output_stride,
                 float* log_sums, std::size_t log_sum_stride);
  // Writes what each token of `slots` receives of the rows' attention, whose log_sums are known: the sum over rows, or
  // the largest. The first of them is token `first_token` of the table.
  void (*receive)(const HostView& pool, const AttentionRows& rows, const float* log_sums, std::size_t log_sum_stride,
                  const PageSlots& slots, std::uint32_t first_token, bool largest, float* received);
  // Adds to [slots][block_size] the mean over the rows of 2^score / Σ 2^score, of the scores that `attend` left (the
  // rows' log_sums are known). Reads up to 16 scores beyond the last slot.
  void (*add_received)(const AttentionRows& rows, const float* log_sums, const PageSlots& slots,
                       std::uint32_t block_size, float* received);
  const char* target;
};

// The kernels of the best instruction set that this machine runs.
AttentionKernels attention_kernels();

}  // namespace shale
