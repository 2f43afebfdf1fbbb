#include "model/packed_matrix.h"

#include <dnnl.hpp>
#include <map>
#include <mutex>

// oneDNN computes on OpenMP threads; here each caller computes its share alone.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace shale {
namespace {

using dnnl::memory;

// While it lives, oneDNN uses the calling thread alone.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

constexpr std::int64_t kLayoutTokens = 256;  // the layout is chosen for so many
constexpr std::size_t kProductsKept = 64;

}  // namespace

// The product as oneDNN compiles it, for each number of tokens that a thread was asked for. Thread-safe.
class PackedMatrix::Products {
 public:
  Products(std::int64_t columns, std::int64_t rows) : columns_(columns), rows_(rows) {
    weights_ = memory::desc({columns, rows}, memory::data_type::bf16, memory::format_tag::any);
    weights_ = describe(kLayoutTokens).weights_desc();
  }

  const memory::desc& weights() const { return weights_; }
  const dnnl::engine& engine() const { return engine_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }

  // x, [tokens][columns] in BF16, times `weights` to y, [tokens][rows].
  void run(std::int64_t tokens, const std::byte* x, const std::byte* weights, std::byte* y) {
    const Product product = get(tokens);
    thread_local AlignedBuffer scratch;
    if (scratch.size() < product.scratch.get_size()) scratch = AlignedBuffer(product.scratch.get_size());
    const auto at = [&](const memory::desc& shape, const std::byte* data) {
      return memory(shape, engine_, const_cast<std::byte*>(data));
    };
    dnnl::stream stream(engine_);
    product.matmul.execute(stream, {{DNNL_ARG_SRC, at(x_shape(tokens), x)},
                                    {DNNL_ARG_WEIGHTS, at(weights_, weights)},
                                    {DNNL_ARG_DST, at(y_shape(tokens), y)},
                                    {DNNL_ARG_SCRATCHPAD, at(product.scratch, scratch.data())}});
    stream.wait();
  }

 private:
  struct Product {
    dnnl::matmul matmul;
    memory::desc scratch;
  };

  memory::desc x_shape(std::int64_t tokens) const {
    return {{tokens, columns_}, memory::data_type::bf16, memory::format_tag::ab};
  }
  memory::desc y_shape(std::int64_t tokens) const {
    return {{tokens, rows_}, memory::data_type::f32, memory::format_tag::ab};
  }
  dnnl::matmul::primitive_desc describe(std::int64_t tokens) const {
    dnnl::primitive_attr options;
    options.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {dnnl::matmul::desc(x_shape(tokens), weights_, y_shape(tokens)), options, engine_};
  }

  Product get(std::int64_t tokens) {
    const std::lock_guard lock(mutex_);
    if (const auto found = products_.find(tokens); found != products_.end()) return found->second;
    if (products_.size() == kProductsKept) products_.clear();
    const auto description = describe(tokens);
    return products_.emplace(tokens, Product{dnnl::matmul(description), description.scratchpad_desc()}).first->second;
  }

  std::int64_t columns_, rows_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  memory::desc weights_;
  std::mutex mutex_;
  std::map<std::int64_t, Product> products_;
};

PackedMatrix::PackedMatrix(std::unique_ptr<Products> products)
    : products_(std::move(products)), packed_(products_->weights().get_size()) {}

PackedMatrix::~PackedMatrix() = default;

std::int64_t PackedMatrix::columns() const { return products_->columns(); }
std::int64_t PackedMatrix::rows() const { return products_->rows(); }

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::pack(const std::byte* weights, std::int64_t columns,
                                                               std::int64_t rows) try {
  const OneThread one;
  std::shared_ptr<PackedMatrix> matrix(new PackedMatrix(std::make_unique<Products>(columns, rows)));
  const Products& products = *matrix->products_;
  memory from({{columns, rows}, memory::data_type::bf16, memory::format_tag::ba}, products.engine(),
              const_cast<std::byte*>(weights));
  memory to(products.weights(), products.engine(), matrix->packed_.data());
  dnnl::stream stream(products.engine());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return matrix;
} catch (const dnnl::error& error) {
  return error.status == dnnl_out_of_memory
             ? fail(ErrorCode::kFull, "not enough memory for the model's weights")
             : fail(ErrorCode::kUnsupported, "oneDNN cannot multiply BF16 on this processor: {}", error.what());
}

ggml_tensor* PackedMatrix::multiply(ggml_context* context, ggml_tensor* x) const {
  return ggml_custom_4d(context, GGML_TYPE_F32, products_->rows(), x->ne[1], 1, 1, &x, 1, run, GGML_N_TASKS_MAX,
                        const_cast<PackedMatrix*>(this));
}

// Threads share out the tokens.
void PackedMatrix::run(ggml_tensor* product, int thread, int threads, void* self) {
  const auto* matrix = static_cast<const PackedMatrix*>(self);
  const ggml_tensor* x = product->src[0];
  const std::int64_t first = x->ne[1] * thread / threads, last = x->ne[1] * (thread + 1) / threads;
  if (first == last) return;
  const OneThread one;
  const auto row = [](const ggml_tensor* tensor, std::int64_t index) {
    return static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(index) * tensor->nb[1];
  };
  matrix->products_->run(last - first, row(x, first), matrix->packed_.data(), row(product, first));
}

}  // namespace shale
