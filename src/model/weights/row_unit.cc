#include "model/weights/row_unit.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace shale {
namespace {

constexpr std::array<std::uint32_t, 5> kUnits = {1, 2, 4, 8, kRowUnitMax};
constexpr std::array<std::uint32_t, 9> kCounts = {1, 2, 3, 5, 16, 33, 64, 65, 130};  // in units, as far as they go
constexpr std::uint32_t kRowsMax = 144;
constexpr std::int64_t kColumnsOfHeadMax = 512;  // of a product with the head, whose kernels are those of all of it

class Trial {
 public:
  Trial(const Matrix& matrix, ComputeThreads& threads) : matrix_(matrix), threads_(threads) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    input_.resize(static_cast<std::size_t>(matrix.columns()) * kRowsMax);
    for (float& each : input_) each = normal(random);
    many_ = product(kRowsMax);
  }

  bool alike(std::uint32_t rows) {
    const std::vector<float> few = product(rows);
    return std::equal(few.begin(), few.end(), many_.begin());
  }

 private:
  std::vector<float> product(std::uint32_t rows) {
    constexpr std::size_t kNodes = 8;
    const ggml_context_ptr context(
        ggml_init({.mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false),
                   .mem_buffer = nullptr,
                   .no_alloc = true}));
    Matrix matrix = matrix_;
    if (matrix.tensor && !matrix.tensor->buffer && matrix.rows() > kColumnsOfHeadMax) {
      matrix.tensor =
          ggml_view_2d(context.get(), matrix.tensor, matrix.columns(), kColumnsOfHeadMax, matrix.tensor->nb[1], 0);
    }
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, matrix.columns(), rows);
    x->data = input_.data();
    std::vector<ggml_bf16_t> narrow(matrix.packed ? input_.size() : 0);
    if (matrix.packed) {
      x = ggml_cast(context.get(), x, GGML_TYPE_BF16);
      x->data = narrow.data();
    }
    ggml_tensor* y = matrix.multiply(context.get(), x);
    std::vector<float> result(static_cast<std::size_t>(matrix.rows()) * rows);
    y->data = result.data();
    ggml_cgraph* graph = ggml_new_graph_custom(context.get(), kNodes, false);
    ggml_build_forward_expand(graph, y);
    ggml_cplan plan = threads_.plan(graph);
    threads_.compute(graph, plan);
    return result;
  }

  const Matrix& matrix_;
  ComputeThreads& threads_;
  std::vector<float> input_, many_;
};

// One of each kind: packed matrices of one layout are alike, whatever their number of rows.
std::vector<const Matrix*> kinds_of(const MatrixSet& set) {
  std::set<std::tuple<int, std::int64_t, std::int64_t>> seen;
  std::vector<const Matrix*> kinds;
  const auto look = [&](const Matrix& matrix) {
    const bool packed = matrix.packed != nullptr;
    const std::tuple kind(packed ? -1 : static_cast<int>(matrix.tensor->type), matrix.columns(),
                          packed ? 0 : std::min(matrix.tensor->ne[1], kColumnsOfHeadMax));
    if (seen.insert(kind).second) kinds.push_back(&matrix);
  };
  for (const MatrixSet::Layer& layer : set.layers()) {
    std::ranges::for_each(layer.qkv, look);
    std::ranges::for_each(layer.gate_up, look);
    look(layer.output);
    look(layer.down);
  }
  look(set.head());
  return kinds;
}

}  // namespace

std::uint32_t find_row_unit(const MatrixSet& set, ComputeThreads& threads) {
  std::size_t unit = 0;
  for (const Matrix* matrix : kinds_of(set)) {
    Trial trial(*matrix, threads);
    const auto works = [&](std::uint32_t rows) {
      return std::ranges::all_of(
          kCounts, [&](std::uint32_t count) { return count * rows > kRowsMax || trial.alike(count * rows); });
    };
    while (unit < kUnits.size() && !works(kUnits[unit])) ++unit;
  }
  return unit < kUnits.size() ? kUnits[unit] : 0;
}

}  // namespace shale
