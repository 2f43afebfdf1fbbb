#include "model/weights/weight_timing.h"

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
    std::vector<Matrix> matrices;
    for (const MatrixSet::Layer& layer : std::span(set.layers()).first(layers)) {
      matrices.insert(matrices.end(), layer.qkv.begin(), layer.qkv.end());
      matrices.insert(matrices.end(), layer.gate_up.begin(), layer.gate_up.end());
      matrices.insert(matrices.end(), {layer.output, layer.down});
    }
    std::int64_t columns = 0, rows = 0;
    for (const Matrix& matrix : matrices) {
      columns = std::max(columns, matrix.columns());
      rows = std::max(rows, matrix.rows());
    }
    input_.assign(static_cast<std::size_t>(columns * tokens), 0.5F);
    narrow_.resize(input_.size());
    output_.resize(static_cast<std::size_t>(rows * tokens));
    const std::size_t nodes = 4 * matrices.size() + 1;
    context_.reset(ggml_init({.mem_size = nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false),
                              .mem_buffer = nullptr,
                              .no_alloc = true}));
    graph_ = ggml_new_graph_custom(context_.get(), nodes, false);
    for (const Matrix& matrix : matrices) {
      ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, matrix.columns(), tokens);
      x->data = input_.data();
      if (matrix.packed) {
        x = ggml_cast(context_.get(), x, GGML_TYPE_BF16);
        x->data = narrow_.data();
      }
      ggml_tensor* product = matrix.multiply(context_.get(), x);
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
  std::vector<ggml_bf16_t> narrow_;
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

std::vector<RunType> candidate_types(const FileTensors& file) {
  std::vector<RunType> types = {RunType::kFile, RunType::kBf16};
  if (PackedMatrix::available()) types.push_back(RunType::kBf16Packed);
  const ggml_type own = file.layers[0].gate->type;
  if (ggml_is_quantized(own) && own != GGML_TYPE_Q8_0) types.push_back(RunType::kQ8);
  return types;
}

Result<std::vector<WeightTiming>> time_weights(const FileTensors& file, ComputeThreads& threads) {
  const std::uint64_t wanted = kSampleElements / elements(file.layers[0]) + 1;
  const auto layers = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, file.layers.size()));
  std::vector<MatrixSet> sets;
  std::vector<WeightTiming> timings;
  for (const RunType type : candidate_types(file)) {
    auto set = MatrixSet::create(file, type, true, layers, threads);
    if (!set && set.error().code == ErrorCode::kUnsupported) continue;
    if (!set) return std::unexpected(std::move(set).error());
    timings.push_back({type, {}});
    sets.push_back(std::move(*set));
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
