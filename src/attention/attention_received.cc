#include <algorithm>
#include <cassert>
#include <vector>

#include "attention/attention.h"
#include "attention/attention_kernels.h"

namespace shale {
namespace {

constexpr std::uint32_t kTaskTokens = 256;  // of one task: several a thread, each with work for all queries

// Consecutive pages of one KV head.
struct Span {
  std::uint32_t head;
  PageSlots slots;
  std::uint32_t first_token, tokens;
};

// The pages that hold tokens [first, end) of the table.
void cut(std::uint32_t head, const HeadTable& table, std::uint32_t first, std::uint32_t end, std::vector<Span>& spans) {
  const PageSlots& pages = table.pages;
  std::size_t page = 0;
  std::uint32_t token = 0;
  while (page < pages.size() && token + pages[page].count <= first) token += pages[page++].count;
  while (page < pages.size() && token < end) {
    const std::size_t first_page = page;
    Span span{head, {}, token, 0};
    while (page < pages.size() && token < end && span.tokens < kTaskTokens) {
      const std::uint32_t count = pages[page++].count;
      token += count;
      span.tokens += count;
    }
    span.slots = pages.subspan(first_page, page - first_page);
    spans.push_back(span);
  }
}

}  // namespace

void received_attention(const PagePool& pool, const AttentionShape& shape, const AttentionWork& work,
                        const ReceivedAttention& to, Executor& executor) {
  assert(work.log_sums && shape.query_heads % shape.kv_heads == 0);
  const std::uint32_t group = shape.query_heads / shape.kv_heads, end = to.first + to.tokens;
  const bool largest = to.kind == ReceivedAttention::Kind::kLargest;
  const AttentionKernels kernels = attention_kernels();
  const HostView pages = pool.host_view();
  const auto rows_of = [&](std::uint32_t head) {
    return AttentionRows{.queries = work.queries + std::size_t{head} * group * shape.head_dim,
                         .query_stride = work.query_stride,
                         .query_count = work.query_count,
                         .group = group,
                         .head_dim = shape.head_dim,
                         .scale = shape.scale,
                         .visible = work.tables[head].tokens - work.query_count + 1,
                         .window = work.window};
  };
  std::vector<Span> spans;
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    cut(head, work.tables[head], std::max(to.first, rows_of(head).hidden(0)), end, spans);
  }
  executor.parallel_for(spans.size(), [&](std::size_t i) {
    const Span& span = spans[i];
    const AttentionRows rows = rows_of(span.head);
    std::vector<float> received(span.tokens);
    kernels.receive(pages, rows, work.log_sums + std::size_t{span.head} * group, shape.query_heads, span.slots,
                    span.first_token, largest, received.data());
    const std::uint32_t begin = std::max(span.first_token, to.first);
    float* sums = to.received + span.head * to.stride + (begin - to.first);
    for (std::uint32_t token = begin; token < std::min(span.first_token + span.tokens, end); ++token, ++sums) {
      const float share = received[token - span.first_token];
      *sums = largest ? std::max(*sums, share) : *sums + share / static_cast<float>(group);
    }
  });
}

}  // namespace shale
