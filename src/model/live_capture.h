// Gathers what scorers read of a sequence that goes on, beside its pages: the queries of its last tokens, and the
// attention that its resident tokens have received.
//
// Handed to Model::step with every step of the sequence, from its first token on or from any later one. What is
// received is added to the sequence's notes once it is ragged, slot by slot, and until then kept here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/attention.h"
#include "core/executor.h"

namespace shale {

struct ModelInfo;

class LiveCapture {
 public:
  // The queries of the last `window` tokens; and where `attention`, the attention received (mean over a KV head's query
  // heads, summed over queries).
  LiveCapture(const ModelInfo& model, std::uint32_t window, bool attention);

  // A copy that goes on by itself, without the attention received unless `attention`.
  LiveCapture(const LiveCapture& other, bool attention) : LiveCapture(other) {
    if (attention_ && !attention) received_.clear();
    attention_ = attention_ && attention;
  }
  LiveCapture(const LiveCapture&) = default;
  LiveCapture(LiveCapture&&) = default;

  // Of how many last tokens queries are kept, and of how many they are there.
  std::uint32_t window() const { return window_; }
  std::uint32_t queries_seen() const { return std::min(seen_, window_); }
  // The last `tokens` (at most queries_seen()) of one layer, after RoPE, [query_heads][tokens][head_dim].
  std::vector<float> queries(std::uint32_t layer, std::uint32_t tokens) const;
  // Call it once the sequence is ragged: what was received until then is added to its notes. Again: does nothing.
  void settle(Sequence& sequence);

  // For Model::step, whose `count` tokens are the sequence's last.
  void begin(std::uint32_t count) { count_ = count; }
  // The step's queries of one layer, rotated, [count][query_heads][head_dim] with rows `stride` floats apart.
  void observe_queries(std::uint32_t layer, const float* rows, std::size_t stride);
  bool wants_attention() const { return attention_; }
  // Called after attention that left log_sums and was not asked for what slots receive.
  void observe_attention(std::uint32_t layer, Sequence& sequence, const AttentionShape& shape,
                         const AttentionWork& work, Executor& executor);
  void end() { seen_ += count_; }

 private:
  std::uint32_t layers_, query_heads_, kv_heads_, head_dim_;
  std::uint32_t window_;
  bool attention_;
  std::uint32_t seen_ = 0, count_ = 0;
  std::vector<float> queries_;                // [layer][token mod window][query head · head dimension]
  std::vector<std::vector<float>> received_;  // until the sequence is ragged, per layer · kv_heads + head, by position
};

}  // namespace shale
