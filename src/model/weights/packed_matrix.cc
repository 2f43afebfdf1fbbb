#include "model/weights/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "core/aligned_buffer.h"

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
constexpr std::int64_t kFewTokens = 64;      // up to so many, reading the weights takes longer than the arithmetic
constexpr std::size_t kProductsKept = 256;

}  // namespace

// The product as oneDNN compiles it, for each number of tokens and rows that a thread was asked for: of all matrices of
// a shape, because to prepare it for every matrix makes a step with a new number of tokens late. Thread-safe.
class PackedMatrix::Products {
 public:
  static std::shared_ptr<Products> of(std::int64_t columns, std::int64_t rows) {
    static std::mutex mutex;
    static std::map<std::pair<std::int64_t, std::int64_t>, std::weak_ptr<Products>> known;
    const std::lock_guard lock(mutex);
    std::weak_ptr<Products>& products = known[{columns, rows}];
    std::shared_ptr<Products> same = products.lock();
    if (!same) products = same = std::make_shared<Products>(columns, rows);
    return same;
  }

  Products(std::int64_t columns, std::int64_t rows) : columns_(columns), rows_(rows) {
    weights_ = memory::desc({columns, rows}, memory::data_type::bf16, memory::format_tag::any);
    weights_ = describe(kLayoutTokens, rows).weights_desc();
    row_unit_ = row_unit_of();
  }

  const memory::desc& weights() const { return weights_; }
  const dnnl::engine& engine() const { return engine_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }
  // The rows can be ragged at its multiples; where they cannot be ragged, all of them.
  std::int64_t row_unit() const { return row_unit_; }

  // x, [tokens][columns] in BF16, times rows [first, last) of `weights` to columns [first, last) of y, [tokens][rows].
  void run(std::int64_t tokens, const std::byte* x, const std::byte* weights, std::int64_t first, std::int64_t last,
           std::byte* y) {
    const std::shared_ptr<const Product> prepared = get(tokens, last - first);
    const Product& product = *prepared;
    thread_local AlignedBuffer scratch, rows;
    // Its fast products leave no gaps between tokens, so what is a part of them goes through a buffer.
    const std::int64_t count = last - first;
    const bool part_only = count < rows_;
    const auto row_floats = static_cast<std::size_t>(count) * sizeof(float);
    const std::size_t y_bytes = static_cast<std::size_t>(tokens) * row_floats;
    std::byte* const to = part_only ? rows.at_least(y_bytes) : y;
    const auto at = [&](const memory::desc& shape, const std::byte* data) {
      return memory(shape, engine_, const_cast<std::byte*>(data));
    };
    // Blocks of rows lie one after another.
    const std::size_t row_bytes = weights_.get_size() / static_cast<std::size_t>(rows_);
    dnnl::stream stream(engine_);
    product.matmul.execute(stream,
                           {{DNNL_ARG_SRC, at(x_shape(tokens), x)},
                            {DNNL_ARG_WEIGHTS, at(part(count), weights + static_cast<std::size_t>(first) * row_bytes)},
                            {DNNL_ARG_DST, at(y_shape(tokens, count), to)},
                            {DNNL_ARG_SCRATCHPAD, at(product.scratch, scratch.at_least(product.scratch.get_size()))}});
    stream.wait();
    for (std::int64_t token = 0; part_only && token < tokens; ++token) {
      std::memcpy(y + static_cast<std::size_t>(token * rows_ + first) * sizeof(float),
                  to + static_cast<std::size_t>(token) * row_floats, row_floats);
    }
  }

 private:
  struct Product {
    dnnl::matmul matmul;
    memory::desc scratch;
  };

  // How many rows a block of the layout holds where whole blocks of rows are its outermost order and a few of them are
  // multiplied by compiled code; else all rows.
  std::int64_t row_unit_of() const {
    const dnnl_memory_desc_t& layout = weights_.data;
    if (layout.format_kind != dnnl_blocked) return rows_;
    std::int64_t block = 1;
    const dnnl_blocking_desc_t& blocking = layout.format_desc.blocking;
    for (int i = 0; i < blocking.inner_nblks; ++i) {
      if (blocking.inner_idxs[i] == 1) block *= blocking.inner_blks[i];
    }
    if (blocking.strides[1] < blocking.strides[0] || rows_ % block != 0) return rows_;
    const std::string_view made_by = describe(kFewTokens, block).impl_info_str();
    return made_by.starts_with("ref") ? rows_ : block;
  }

  memory::desc part(std::int64_t rows) const {
    return rows == rows_ ? weights_ : weights_.submemory_desc({columns_, rows}, {0, 0});
  }
  memory::desc x_shape(std::int64_t tokens) const {
    return {{tokens, columns_}, memory::data_type::bf16, memory::format_tag::ab};
  }
  memory::desc y_shape(std::int64_t tokens, std::int64_t rows) const {
    return {{tokens, rows}, memory::data_type::f32, memory::format_tag::ab};
  }
  dnnl::matmul::primitive_desc describe(std::int64_t tokens, std::int64_t rows) const {
    dnnl::primitive_attr options;
    options.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {dnnl::matmul::desc(x_shape(tokens), part(rows), y_shape(tokens, rows)), options, engine_};
  }

  // All threads ask at the same moment: one that slept for another's lock would lose its core.
  std::shared_ptr<const Product> get(std::int64_t tokens, std::int64_t rows) {
    const std::pair key(tokens, rows);
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = products_.find(key); found != products_.end()) return found->second;
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = products_.find(key); found != products_.end()) return found->second;
    if (products_.size() == kProductsKept) products_.clear();
    const auto description = describe(tokens, rows);
    auto product = std::make_shared<const Product>(dnnl::matmul(description), description.scratchpad_desc());
    return products_.emplace(key, std::move(product)).first->second;
  }

  std::int64_t columns_, rows_;
  std::int64_t row_unit_ = 0;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  memory::desc weights_;
  std::shared_mutex mutex_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<const Product>> products_;
};

PackedMatrix::PackedMatrix(std::shared_ptr<Products> products) : products_(std::move(products)) {}

PackedMatrix::~PackedMatrix() = default;

std::int64_t PackedMatrix::columns() const { return products_->columns(); }
std::int64_t PackedMatrix::rows() const { return products_->rows(); }
std::uint64_t PackedMatrix::bytes() const { return products_->weights().get_size(); }

bool PackedMatrix::available() try {
  const OneThread one;
  Products::of(64, 64);
  return true;
} catch (const dnnl::error&) {
  return false;
}

std::uint64_t PackedMatrix::instruction_sets() { return static_cast<std::uint64_t>(dnnl::get_effective_cpu_isa()); }

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::pack(const std::byte* weights, std::int64_t columns,
                                                               std::int64_t rows, WeightMemory& to_memory) try {
  const OneThread one;
  std::shared_ptr<PackedMatrix> matrix(new PackedMatrix(Products::of(columns, rows)));
  const Products& products = *matrix->products_;
  matrix->packed_ = to_memory.allocate(matrix->bytes());
  memory from({{columns, rows}, memory::data_type::bf16, memory::format_tag::ba}, products.engine(),
              const_cast<std::byte*>(weights));
  memory to(products.weights(), products.engine(), matrix->packed_);
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

// Threads share out the rows, so that each weight is read once; many tokens are shared out instead, which keeps the
// products large.
void PackedMatrix::run(ggml_tensor* product, int thread, int threads, void* self) {
  const auto* matrix = static_cast<const PackedMatrix*>(self);
  const ggml_tensor* x = product->src[0];
  const auto share = [&](std::int64_t count, std::int64_t unit, int of) {
    const std::int64_t units = (count + unit - 1) / unit;
    return std::min(count, units * of / threads * unit);
  };
  const bool few = x->ne[1] <= kFewTokens;
  const std::int64_t rows = matrix->rows(), unit = matrix->products_->row_unit();
  const std::int64_t first_row = few ? share(rows, unit, thread) : 0;
  const std::int64_t last_row = few ? share(rows, unit, thread + 1) : rows;
  const std::int64_t first = few ? 0 : share(x->ne[1], 1, thread);
  const std::int64_t last = few ? x->ne[1] : share(x->ne[1], 1, thread + 1);
  if (first == last || first_row == last_row) return;
  const OneThread one;
  const auto token = [](const ggml_tensor* tensor, std::int64_t index) {
    return static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(index) * tensor->nb[1];
  };
  matrix->products_->run(last - first, token(x, first), matrix->packed_, first_row, last_row, token(product, first));
}

}  // namespace shale
