#include "model/weight_timing.h"

#include <algorithm>
#include <ctime>
#include <limits>

namespace shale {
namespace {

// Enough layers that decoding reads weights from beyond the private caches, as it does in the whole model.
constexpr std::uint64_t kSampleElements = 12 << 20;

// Time that this thread had a core: what its neighbours take does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The products of some layers of one set, as one graph without dependencies.
class Products {
 public:
  Products(const MatrixSet& set, std::size_t layers, std::uint32_t tokens, ComputeThreads& threads)
      : threads_(threads) {
    std::vector<ggml_tensor*> matrices;
    for (const MatrixSet::Layer& layer : std::span(set.layers()).first(layers)) {
      matrices.insert(matrices.end(), layer.qkv.begin(), layer.qkv.end());
      matrices.insert(matrices.end(), layer.gate_up.begin(), layer.gate_up.end());
      matrices.insert(matrices.end(), {layer.output, layer.down});
    }
    std::int64_t columns = 0, rows = 0;
    for (const ggml_tensor* matrix : matrices) {
      columns = std::max(columns, matrix->ne[0]);
      rows = std::max(rows, matrix->ne[1]);
    }
    input_.assign(static_cast<std::size_t>(columns * tokens), 0.5F);
    output_.resize(static_cast<std::size_t>(rows * tokens));
    const std::size_t nodes = 2 * matrices.size() + 1;
    context_.reset(ggml_init({.mem_size = nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false),
                              .mem_buffer = nullptr,
                              .no_alloc = true}));
    graph_ = ggml_new_graph_custom(context_.get(), nodes, false);
    for (ggml_tensor* matrix : matrices) {
      ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, matrix->ne[0], tokens);
      x->data = input_.data();
      ggml_tensor* product = ggml_mul_mat(context_.get(), matrix, x);
      product->data = output_.data();
      ggml_build_forward_expand(graph_, product);
    }
    plan_ = threads.plan(graph_, 1);
  }

  double run() {
    const double start = thread_seconds();
    threads_.compute(graph_, plan_);
    return thread_seconds() - start;
  }

 private:
  ComputeThreads& threads_;
  std::vector<float> input_, output_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_;
  ggml_cplan plan_;
};

std::uint64_t elements(const FileTensors::Layer& layer) {
  std::uint64_t count = 0;
  for (const GgufTensor* tensor :
       {layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down}) {
    count += static_cast<std::uint64_t>(tensor->shape[0] * tensor->shape[1]);
  }
  return count;
}

}  // namespace

std::vector<std::optional<ggml_type>> candidate_types(const FileTensors& file) {
  std::vector<std::optional<ggml_type>> types = {std::nullopt, GGML_TYPE_BF16};
  const ggml_type own = file.layers[0].gate->type;
  if (ggml_is_quantized(own) && own != GGML_TYPE_Q8_0) types.emplace_back(GGML_TYPE_Q8_0);
  return types;
}

std::string candidate_name(std::optional<ggml_type> type) { return type ? ggml_type_name(*type) : "file"; }

Result<std::vector<WeightTiming>> time_weights(const FileTensors& file, ComputeThreads& threads) {
  const std::uint64_t wanted = kSampleElements / elements(file.layers[0]) + 1;
  const auto layers = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, file.layers.size()));
  std::vector<MatrixSet> sets;
  std::vector<WeightTiming> timings;
  for (const auto type : candidate_types(file)) {
    SHALE_ASSIGN(MatrixSet set, MatrixSet::create(file, type, true, layers, threads));
    timings.push_back({type, {}});
    sets.push_back(std::move(set));
  }
  for (std::size_t t = 0; t < kTimedTokens.size(); ++t) {
    // Many tokens reuse what they read, so there one layer says enough.
    const std::size_t sample = kTimedTokens[t] < 16 ? layers : 1;
    std::vector<Products> products;
    products.reserve(sets.size());
    for (const MatrixSet& set : sets) products.emplace_back(set, sample, kTimedTokens[t], threads);
    for (WeightTiming& timing : timings) timing.seconds[t] = std::numeric_limits<double>::infinity();
    for (int round = 0; round < (kTimedTokens[t] < 16 ? 5 : 3); ++round) {
      for (std::size_t i = 0; i < sets.size(); ++i) {
        timings[i].seconds[t] = std::min(timings[i].seconds[t], products[i].run() / static_cast<double>(sample));
      }
    }
  }
  return timings;
}

}  // namespace shale
