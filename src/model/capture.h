// Gathers what scorers read beside keys and values, while forward steps compute the tokens of a span.
//
// Handed to Model::step with every chunk of the span, in order. Steps beyond its last token are taken as the model
// repeating it, for the attention that its tokens receive meanwhile. Nothing that is not needed is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/attention.h"
#include "core/executor.h"
#include "scoring/attention_statistics.h"

namespace shale {

struct ModelInfo;

class Capture {
 public:
  // Captures the tokens at positions [first, first + tokens) of an exact sequence. Keys, values, rope and calibration
  // in `needs` are not for a capture.
  Capture(const ModelInfo& model, std::uint32_t first, std::uint32_t tokens, const ScorerNeeds& needs);

  // The parts that are complete: a step that failed, or tokens that came from elsewhere, leave out what they spoil, and
  // computing again from the first token makes it good. Then the capture is spent.
  AttentionStatistics take();

  // For Model::step. `sequence` holds the step's `count` tokens as its last; kInvalidArgument where they lie across the
  // span's first or last token, or the sequence is lossy.
  Status check(const Sequence& sequence, std::uint32_t count) const;
  void begin(const Sequence& sequence, std::uint32_t count);
  // The step's queries of one layer, rotated, [count][query_heads][head_dim] with rows `stride` floats apart.
  void observe_queries(std::uint32_t layer, const float* rows, std::size_t stride, Executor& executor);
  // Whether observe_attention is to be called, with the log_sums of the attention just computed.
  bool wants_attention() const { return repeating_ ? needs_.repeat_attention : needs_.attention_sums; }
  void observe_attention(std::uint32_t layer, const PagePool& pool, const AttentionShape& shape,
                         const AttentionWork& work, Executor& executor);
  void end();

 private:
  std::uint32_t last() const { return first_ + seen_.tokens; }  // position after the span
  std::vector<float> turns_of(const Rope& rope) const;
  void keep_window(std::uint32_t layer, const float* rows, std::size_t stride);
  void add_moments(std::uint32_t layer, std::uint32_t head, const float* rows, std::size_t stride);

  // The model's rotations that differ; which one each layer turns by; and, for each, the cosine and sine of every pair
  // for every token of the step.
  std::vector<Rope> ropes_;
  std::vector<std::size_t> rope_of_layer_;
  std::vector<std::vector<float>> turns_;
  std::uint32_t first_;
  ScorerNeeds needs_;
  AttentionStatistics seen_;  // until taken, query_covariance holds sums, of which the upper triangle

  std::uint32_t position_ = 0, count_ = 0;  // of the step in flight, or the last
  bool in_flight_ = false;
  bool repeating_ = false;
  std::uint32_t next_;           // what comes next where nothing is missing
  std::uint32_t unbroken_from_;  // positions [unbroken_from_, next_) were observed without a gap
  std::uint32_t repetitions_ = 0;
};

}  // namespace shale
