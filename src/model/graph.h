// The matrix library's part of a step, as graphs per layer segment:
//
//   segment 0        norm, queries · keys · values, biases, RoPE            of layer 0
//   segment l        output projection, feed-forward network of layer l − 1; then as segment 0 for layer l
//   head segment     output projection, feed-forward network of the last layer, norm, logits: for chosen rows alone
//
// Attention runs between them, on the same activations. All graphs of a `Graphs` share one set of buffers, sized once
// for the largest step, and are kept for the token counts used last, so that a step allocates nothing. Not thread-safe.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/architectures/architecture.h"
#include "model/compute_threads.h"
#include "model/weights/row_unit.h"
#include "model/weights/weights.h"

namespace shale {

// Queries, keys and values of a step's tokens: rows of floats, consecutive tokens `…_stride` floats apart.
struct QkvRows {
  float *queries, *keys, *values;
  std::size_t query_stride, kv_stride;
};

class Graphs {
 public:
  Graphs(const Hyperparameters& hyper, const Vectors& vectors, std::uint32_t tokens_max, ComputeThreads& threads);

  // What the first segment reads; written before a step.
  std::span<float> hidden(std::uint32_t tokens) { return {hidden_, std::size_t{tokens} * hyper_.embedding}; }
  std::span<std::int32_t> positions(std::uint32_t tokens) { return {positions_, tokens}; }
  // Where attention leaves its output, [tokens][query heads · head dimension].
  float* attention() { return attention_; }
  // Which of the step's tokens the head segment computes.
  std::span<std::int32_t> rows(std::uint32_t count) { return {rows_, count}; }

  // Segment `layer` of a step of `tokens` tokens, run with the matrices of `set` in whole units of `unit` rows, at most
  // kRowUnitMax: those beyond the tokens mean nothing. The rows stay valid until the next.
  QkvRows run_layer(const MatrixSet& set, std::uint32_t layer, std::uint32_t tokens, std::uint32_t unit);
  // Logits of the chosen rows, [count][vocabulary]; valid until the next call.
  std::span<const float> run_head(const MatrixSet& set, std::uint32_t tokens, std::uint32_t count, std::uint32_t unit);

 private:
  struct Segment {
    ggml_cgraph* graph;
    ggml_cplan plan;
    QkvRows qkv;
  };
  // The graphs of one token count (and, for the head, one row count).
  struct Step {
    const MatrixSet* set;
    std::uint32_t tokens, head_rows;
    ggml_context_ptr context;
    std::vector<Segment> segments;
  };

  class Builder;
  Step& step(const MatrixSet& set, std::uint32_t tokens, std::uint32_t head_rows);

  const Hyperparameters& hyper_;
  const Vectors& vectors_;
  ComputeThreads& threads_;
  AlignedBuffer activations_, work_, logits_buffer_;
  float *hidden_, *qkv_, *attention_, *logits_;
  std::int32_t *positions_, *rows_;
  std::list<Step> steps_;  // the one used last first
};

}  // namespace shale
