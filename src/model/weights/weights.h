// A model's tensors, named and checked, and copies of its matrices in the types they run in.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "model/architectures/architecture.h"
#include "model/weights/gguf_file.h"
#include "model/weights/packed_matrix.h"
#include "model/weights/weight_memory.h"

namespace shale {

// The file's tensors by their part in the model; every pointer is set and every shape and type checked, but for those
// said to be optional (null).
struct FileTensors {
  struct Layer {
    const GgufTensor *attention_norm, *query, *key, *value, *output, *feed_forward_norm, *gate, *up, *down;
    const GgufTensor *query_bias, *key_bias, *value_bias;  // optional, all or none
    // Null unless the architecture has them.
    const GgufTensor *query_norm, *key_norm, *attention_post_norm, *feed_forward_post_norm;
  };
  std::vector<Layer> layers;
  const GgufTensor *token_embedding, *output_norm;
  const GgufTensor* head;          // the embedding itself where the file ties them
  const GgufTensor* rope_factors;  // optional

  // kCorrupt: a tensor is missing or has another shape. kUnsupported: a type that the matrix library cannot run.
  static Result<FileTensors> find(const GgufFile& file, const Hyperparameters& hyper);
};

// The type that holds most of the layers' bytes: "q4_1".
std::string main_type_name(const FileTensors& file);

// Dequantises rows [row, row + rows) of a matrix.
void dequantise_rows(const GgufTensor& tensor, std::int64_t row, std::int64_t rows, float* to);

// The small tensors, in F32: norms, biases, RoPE factors. Read by every set of matrices.
struct Vectors {
  struct Layer {
    ggml_tensor *attention_norm, *feed_forward_norm;
    ggml_tensor* qkv_bias;    // queries', keys', values' biases one after another; null without
    ggml_tensor* head_norms;  // [query heads, then KV heads][head dimension], each head its own copy; null without
    ggml_tensor *attention_post_norm, *feed_forward_post_norm;  // null without
  };
  std::vector<Layer> layers;
  ggml_tensor* output_norm;
  ggml_tensor* rope_factors;  // or null

  Vectors(const FileTensors& file, const Hyperparameters& hyper);

 private:
  ggml_context_ptr context_;
};

// What matrices run in: each in its type of the file, or all converted to one.
enum class RunType {
  kFile,
  kF32,
  kBf16,
  kBf16Packed,  // packed_matrix.h
  kQ8,
};
// "file", "f32", "bf16", "bf16-packed", "q8_0".
std::string_view to_string(RunType type);

// One of ggml's tensors, or packed; never both.
struct Matrix {
  ggml_tensor* tensor = nullptr;
  std::shared_ptr<const PackedMatrix> packed = nullptr;

  std::int64_t columns() const { return tensor ? tensor->ne[0] : packed->columns(); }
  std::int64_t rows() const { return tensor ? tensor->ne[1] : packed->rows(); }
  // A node that multiplies the rows x by the matrix: FP32, or BF16 for a packed one.
  ggml_tensor* multiply(ggml_context* context, ggml_tensor* x) const {
    return tensor ? ggml_mul_mat(context, tensor, x) : packed->multiply(context, x);
  }
};

// All matrices of a model, to run in one way.
//
// Matrices that multiply the same vector (queries, keys and values; gate and up) are stacked into one where their types
// agree. Types that the CPU backend can repack go to its repacking buffers; everything else is copied into huge pages.
class MatrixSet {
 public:
  struct Layer {
    std::vector<Matrix> qkv;      // one stacked, or three
    std::vector<Matrix> gate_up;  // one stacked, or two
    Matrix output, down;
  };

  // `layers`: only the first so many, without the head (to measure); 0: everything. `stack`: copy in order to stack.
  // kFull: not enough memory. kUnsupported: this processor cannot run the type.
  static Result<MatrixSet> create(const FileTensors& file, RunType type, bool stack, std::uint32_t layers,
                                  Executor& executor);

  const std::vector<Layer>& layers() const { return layers_; }
  const Matrix& head() const { return head_; }
  std::uint64_t bytes() const { return bytes_; }
  // The type that holds most of the layers' bytes: "bf16".
  std::string type_name() const;

 private:
  MatrixSet() = default;
  Result<Matrix> add(std::vector<const GgufTensor*> parts, RunType type, Executor& executor);
  Result<std::vector<Matrix>> add_group(std::vector<const GgufTensor*> parts, RunType type, bool stack,
                                        Executor& executor);

  ggml_context_ptr context_;
  std::vector<ggml_backend_buffer_ptr> buffers_;
  WeightMemory memory_;
  std::vector<Layer> layers_;
  Matrix head_;
  std::uint64_t bytes_ = 0;
};

}  // namespace shale
