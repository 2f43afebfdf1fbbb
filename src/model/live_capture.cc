#include "model/live_capture.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/model.h"

namespace shale {

LiveCapture::LiveCapture(const ModelInfo& model, std::uint32_t window, bool attention)
    : layers_(model.layers),
      query_heads_(model.query_heads),
      kv_heads_(model.kv_heads),
      head_dim_(model.head_dim),
      window_(window),
      attention_(attention),
      queries_(std::size_t{model.layers} * window * model.query_heads * model.head_dim),
      received_(attention ? std::size_t{model.layers} * model.kv_heads : 0) {}

void LiveCapture::observe_queries(std::uint32_t layer, const float* rows, std::size_t stride) {
  const std::size_t row = std::size_t{query_heads_} * head_dim_;
  for (std::uint32_t i = count_ - std::min(count_, window_); i < count_; ++i) {
    std::copy_n(rows + i * stride, row, &queries_[(std::size_t{layer} * window_ + (seen_ + i) % window_) * row]);
  }
}

std::vector<float> LiveCapture::queries(std::uint32_t layer, std::uint32_t tokens) const {
  assert(tokens <= queries_seen());
  const std::size_t row = std::size_t{query_heads_} * head_dim_;
  std::vector<float> ordered(tokens * row);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    const float* from = &queries_[(std::size_t{layer} * window_ + (seen_ - tokens + i) % window_) * row];
    for (std::size_t head = 0; head < query_heads_; ++head) {
      std::copy_n(from + head * head_dim_, head_dim_, &ordered[(head * tokens + i) * head_dim_]);
    }
  }
  return ordered;
}

void LiveCapture::observe_attention(std::uint32_t layer, Sequence& sequence, const AttentionShape& shape,
                                    const AttentionWork& work, Executor& executor) {
  std::uint32_t slots = 0;
  for (const HeadTable& table : work.tables) slots = std::max(slots, table.tokens);
  std::vector<float> received(std::size_t{kv_heads_} * slots);
  received_attention(sequence.pool(), shape, work,
                     {.first = 0, .tokens = slots, .received = received.data(), .stride = slots}, executor);
  const std::uint32_t block_size = sequence.pool().shape().block_size;
  for (std::uint32_t head = 0; head < kv_heads_; ++head) {
    const float* from = &received[std::size_t{head} * slots];
    if (!sequence.ragged()) {
      std::vector<float>& to = received_[layer * kv_heads_ + head];
      to.resize(std::max<std::size_t>(to.size(), work.tables[head].tokens));
      std::transform(to.begin(), to.begin() + work.tables[head].tokens, from, to.begin(), std::plus());
      continue;
    }
    const std::span<float> notes = sequence.notes(layer, head);
    const auto pages = work.tables[head].pages;
    for (std::size_t p = 0; p < pages.size(); from += pages[p++].count) {
      float* to = &notes[p * block_size];
      std::transform(to, to + pages[p].count, from, to, std::plus());
    }
  }
}

void LiveCapture::settle(Sequence& sequence) {
  assert(sequence.ragged());
  for (std::size_t i = 0; i < received_.size(); ++i) {
    const std::vector<float> from = std::exchange(received_[i], {});
    if (from.empty()) continue;
    const auto layer = static_cast<std::uint32_t>(i / kv_heads_), head = static_cast<std::uint32_t>(i % kv_heads_);
    const std::span<const std::uint32_t> positions = sequence.positions(layer, head);
    const std::span<float> notes = sequence.notes(layer, head);
    for_each_token(sequence.table(layer, head).pages, sequence.pool().shape().block_size, [&](std::uint32_t slot) {
      if (positions[slot] < from.size()) notes[slot] += from[positions[slot]];
    });
  }
}

}  // namespace shale
