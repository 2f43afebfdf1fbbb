#include "model/graph.h"

#include <algorithm>
#include <cassert>

namespace shale {
namespace {

constexpr std::size_t kStepsKept = 16;
constexpr std::size_t kNodesPerSegment = 64;  // tensors, views included; a layer segment makes 48 at most

}  // namespace

// Makes one segment's tensors. Intermediate results are laid out one after another in the shared work buffer, which
// every segment fills from its start.
class Graphs::Builder {
 public:
  Builder(Graphs& graphs, ggml_context* context)
      : graphs_(graphs),
        hyper_(graphs.hyper_),
        context_(context),
        graph_(ggml_new_graph_custom(context, kNodesPerSegment, false)) {}

  ggml_tensor* buffer(void* data, ggml_type type, std::int64_t columns, std::int64_t rows) {
    ggml_tensor* tensor =
        rows == 0 ? ggml_new_tensor_1d(context_, type, columns) : ggml_new_tensor_2d(context_, type, columns, rows);
    tensor->data = data;
    return tensor;
  }

  ggml_tensor* place(ggml_tensor* tensor) {
    if (!tensor->data) {
      tensor->data = graphs_.work_.data() + used_;
      used_ += round_up(ggml_nbytes(tensor), 64);
      assert(used_ <= graphs_.work_.size());
    }
    return tensor;
  }

  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight) {
    ggml_tensor* normed = place(ggml_rms_norm(context_, x, hyper_.norm_epsilon));
    return place(ggml_mul(context_, normed, weight));
  }

  ggml_tensor* multiply(const Matrix& matrix, ggml_tensor* x) { return place(product(matrix, x)); }

  // Its place is still to be chosen.
  ggml_tensor* product(const Matrix& matrix, ggml_tensor* x) {
    return matrix.multiply(context_, matrix.packed ? place(ggml_cast(context_, x, GGML_TYPE_BF16)) : x);
  }

  ggml_tensor* pick(ggml_tensor* x, ggml_tensor* rows) { return place(ggml_get_rows(context_, x, rows)); }

  // As `norm`, where the architecture has one here.
  ggml_tensor* post_norm(ggml_tensor* x, ggml_tensor* weight) { return weight ? norm(x, weight) : x; }

  // gate's activation · up, of one matrix's rows or of two matrices'.
  ggml_tensor* gated(const MatrixSet::Layer& matrices, ggml_tensor* x) {
    const ggml_glu_op op =
        hyper_.architecture->activation == Architecture::Activation::kGelu ? GGML_GLU_OP_GEGLU : GGML_GLU_OP_SWIGLU;
    ggml_tensor* gate = multiply(matrices.gate_up[0], x);
    if (matrices.gate_up.size() == 1) return place(ggml_glu(context_, gate, op, false));
    return place(ggml_glu_split(context_, gate, multiply(matrices.gate_up[1], x), op));
  }

  // Adds the output projection and the feed-forward network of one layer to x, in place.
  ggml_tensor* finish_layer(const MatrixSet::Layer& matrices, const Vectors::Layer& vectors, ggml_tensor* x,
                            ggml_tensor* attention) {
    x = ggml_add_inplace(context_, x, post_norm(multiply(matrices.output, attention), vectors.attention_post_norm));
    ggml_tensor* product = multiply(matrices.down, gated(matrices, norm(x, vectors.feed_forward_norm)));
    return ggml_add_inplace(context_, x, post_norm(product, vectors.feed_forward_post_norm));
  }

  // Queries, keys and values of one layer, rotated, into the shared buffer.
  QkvRows start_layer(std::uint32_t layer, const MatrixSet::Layer& matrices, ggml_tensor* x, ggml_tensor* positions) {
    const Vectors::Layer& vectors = graphs_.vectors_.layers[layer];
    const std::size_t query = hyper_.query_width(), kv = hyper_.kv_width(), tokens = static_cast<std::size_t>(x->ne[1]);
    ggml_tensor* normed = norm(x, vectors.attention_norm);
    float* to = graphs_.qkv_;
    if (matrices.qkv.size() == 1) {
      ggml_tensor* qkv = product(matrices.qkv[0], normed);
      qkv->data = to;
      if (vectors.qkv_bias) qkv = ggml_add_inplace(context_, qkv, vectors.qkv_bias);
      ggml_build_forward_expand(graph_, rotate(layer, qkv, 0, hyper_.query_heads + hyper_.kv_heads, positions));
      return {to, to + query, to + query + kv, hyper_.qkv_width(), hyper_.qkv_width()};
    }
    const std::size_t widths[] = {query, kv, kv};
    QkvRows rows{to, to + query * tokens, to + (query + kv) * tokens, query, kv};
    std::size_t first = 0;
    for (std::size_t part = 0; part < 3; ++part) {
      ggml_tensor* projected = product(matrices.qkv[part], normed);
      projected->data = to + first * tokens;
      if (vectors.qkv_bias) {
        ggml_tensor* bias =
            ggml_view_1d(context_, vectors.qkv_bias, static_cast<std::int64_t>(widths[part]), first * sizeof(float));
        projected = ggml_add_inplace(context_, projected, bias);
      }
      if (part == 0) projected = rotate(layer, projected, 0, hyper_.query_heads, positions);
      if (part == 1) projected = rotate(layer, projected, hyper_.query_heads, hyper_.kv_heads, positions);
      ggml_build_forward_expand(graph_, projected);
      first += widths[part];
    }
    return rows;
  }

  Segment finish(ggml_tensor* result) {
    ggml_build_forward_expand(graph_, result);
    return {graph_, graphs_.threads_.plan(graph_), {}};
  }

 private:
  // Norms, where the architecture does, and rotates the first `heads` heads of the rows, in place: heads first_head …
  // of the layer's queries and keys.
  ggml_tensor* rotate(std::uint32_t layer, ggml_tensor* rows, std::uint32_t first_head, std::uint32_t heads,
                      ggml_tensor* positions) {
    const std::size_t head_bytes = hyper_.head_dim * sizeof(float);
    ggml_tensor* view = ggml_view_3d(context_, rows, hyper_.head_dim, heads, rows->ne[1], head_bytes, rows->nb[1], 0);
    if (ggml_tensor* norms = graphs_.vectors_.layers[layer].head_norms) {
      ggml_tensor* weights = ggml_view_2d(context_, norms, hyper_.head_dim, heads, head_bytes, first_head * head_bytes);
      view = ggml_mul_inplace(context_, ggml_rms_norm_inplace(context_, view, hyper_.norm_epsilon), weights);
    }
    const Hyperparameters::Layer& turned = hyper_.layers[layer];
    return ggml_rope_ext_inplace(context_, view, positions, graphs_.vectors_.rope_factors,
                                 static_cast<int>(hyper_.rope_dimensions), hyper_.architecture->rope_mode,
                                 static_cast<int>(hyper_.context_max), turned.rope_base, turned.rope_scale, 0, 1, 32,
                                 1);
  }

  Graphs& graphs_;
  const Hyperparameters& hyper_;
  ggml_context* context_;
  ggml_cgraph* graph_;
  std::size_t used_ = 0;
};

Graphs::Graphs(const Hyperparameters& hyper, const Vectors& vectors, std::uint32_t tokens_max, ComputeThreads& threads)
    : hyper_(hyper), vectors_(vectors), threads_(threads) {
  const std::size_t tokens = round_up(tokens_max, kRowUnitMax);
  const std::size_t widths = hyper.embedding + hyper.qkv_width() + hyper.query_width() + 2;
  activations_ = AlignedBuffer(tokens * widths * sizeof(float));
  hidden_ = reinterpret_cast<float*>(activations_.data());
  qkv_ = hidden_ + tokens * hyper.embedding;
  attention_ = qkv_ + tokens * hyper.qkv_width();
  positions_ = reinterpret_cast<std::int32_t*>(attention_ + tokens * hyper.query_width());
  rows_ = positions_ + tokens;
  // Per token: picked rows, norms and products as wide as the embedding, the gated product before and after, and what
  // packed matrices multiply in BF16.
  const std::size_t work_widths = 14 * hyper.embedding + 2 * hyper.query_width() + 4 * hyper.feed_forward;
  work_ = AlignedBuffer(tokens * work_widths * sizeof(float) + kNodesPerSegment * 64);
  logits_buffer_ = AlignedBuffer(tokens * hyper.vocabulary * sizeof(float));
  logits_ = reinterpret_cast<float*>(logits_buffer_.data());
}

Graphs::Step& Graphs::step(const MatrixSet& set, std::uint32_t tokens, std::uint32_t head_rows) {
  const auto found = std::ranges::find_if(steps_, [&](const Step& step) {
    return step.set == &set && step.tokens == tokens && step.head_rows == head_rows;
  });
  if (found != steps_.end()) {
    steps_.splice(steps_.begin(), steps_, found);
    return steps_.front();
  }
  if (steps_.size() == kStepsKept) steps_.pop_back();

  const std::size_t segments = head_rows ? 1 : hyper_.layers.size();
  const std::size_t memory =
      segments * (kNodesPerSegment * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodesPerSegment, false));
  Step made{&set,
            tokens,
            head_rows,
            ggml_context_ptr(ggml_init({.mem_size = memory, .mem_buffer = nullptr, .no_alloc = true})),
            {}};
  ggml_context* context = made.context.get();
  if (head_rows) {
    Builder builder(*this, context);
    ggml_tensor* rows = builder.buffer(rows_, GGML_TYPE_I32, head_rows, 0);
    ggml_tensor* attention = builder.buffer(attention_, GGML_TYPE_F32, hyper_.query_width(), tokens);
    ggml_tensor* hidden = builder.buffer(hidden_, GGML_TYPE_F32, hyper_.embedding, tokens);
    ggml_tensor* x = builder.finish_layer(set.layers().back(), vectors_.layers.back(), builder.pick(hidden, rows),
                                          builder.pick(attention, rows));
    ggml_tensor* logits = builder.product(set.head(), builder.norm(x, vectors_.output_norm));
    logits->data = logits_;
    made.segments.push_back(builder.finish(logits));
  } else {
    for (std::uint32_t l = 0; l < hyper_.layer_count(); ++l) {
      Builder builder(*this, context);
      ggml_tensor* positions = builder.buffer(positions_, GGML_TYPE_I32, tokens, 0);
      ggml_tensor* x = builder.buffer(hidden_, GGML_TYPE_F32, hyper_.embedding, tokens);
      if (l > 0) {
        ggml_tensor* attention = builder.buffer(attention_, GGML_TYPE_F32, hyper_.query_width(), tokens);
        x = builder.finish_layer(set.layers()[l - 1], vectors_.layers[l - 1], x, attention);
      }
      const QkvRows qkv = builder.start_layer(l, set.layers()[l], x, positions);
      made.segments.push_back(builder.finish(x));
      made.segments.back().qkv = qkv;
    }
  }
  return steps_.emplace_front(std::move(made));
}

QkvRows Graphs::run_layer(const MatrixSet& set, std::uint32_t layer, std::uint32_t tokens, std::uint32_t unit) {
  const auto rows = static_cast<std::uint32_t>(round_up(tokens, unit));
  if (layer == 0) {
    std::fill_n(hidden_ + std::size_t{tokens} * hyper_.embedding, std::size_t{rows - tokens} * hyper_.embedding, 0.0f);
    std::fill_n(positions_ + tokens, rows - tokens, 0);
    std::fill_n(attention_ + std::size_t{tokens} * hyper_.query_width(),
                std::size_t{rows - tokens} * hyper_.query_width(), 0.0f);
  }
  Segment& segment = step(set, rows, 0).segments[layer];
  threads_.compute(segment.graph, segment.plan);
  return segment.qkv;
}

std::span<const float> Graphs::run_head(const MatrixSet& set, std::uint32_t tokens, std::uint32_t count,
                                        std::uint32_t unit) {
  const auto head_rows = static_cast<std::uint32_t>(round_up(count, unit));
  std::fill_n(rows_ + count, head_rows - count, 0);
  Segment& segment = step(set, static_cast<std::uint32_t>(round_up(tokens, unit)), head_rows).segments[0];
  threads_.compute(segment.graph, segment.plan);
  return {logits_, std::size_t{count} * hyper_.vocabulary};
}

}  // namespace shale
