// A model's tensors, named and checked, and copies of its matrices in the types they run in.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/error.h"
#include "core/executor.h"
#include "model/architecture.h"
#include "model/gguf_file.h"

namespace shale {

// The file's tensors by their part in the model; every pointer is set and every shape and type checked, but for those
// said to be optional (null).
struct FileTensors {
  struct Layer {
    const GgufTensor *attention_norm, *query, *key, *value, *output, *feed_forward_norm, *gate, *up, *down;
    const GgufTensor *query_bias, *key_bias, *value_bias;  // optional, all or none
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
    ggml_tensor* qkv_bias;  // queries', keys', values' biases one after another; null without
  };
  std::vector<Layer> layers;
  ggml_tensor* output_norm;
  ggml_tensor* rope_factors;  // or null

  Vectors(const FileTensors& file, const Hyperparameters& hyper);

 private:
  ggml_context_ptr context_;
};

// All matrices in one type, or each in its own type of the file.
//
// Matrices that multiply the same vector (queries, keys and values; gate and up) are stacked into one where their types
// agree and they are copied anyway. Types that the CPU backend can repack go to its repacking buffers. What stays in
// the file's type and is neither repacked nor stacked is read from the mapped file itself.
class MatrixSet {
 public:
  struct Layer {
    std::vector<ggml_tensor*> qkv;      // one stacked, or three
    std::vector<ggml_tensor*> gate_up;  // one stacked, or two
    ggml_tensor *output, *down;
  };

  // `type`: every matrix is converted to it; none: as in the file. `layers`: only the first so many, without the head
  // (to measure); 0: everything. `stack`: copy in order to stack. kFull: not enough memory.
  static Result<MatrixSet> create(const FileTensors& file, std::optional<ggml_type> type, bool stack,
                                  std::uint32_t layers, Executor& executor);

  const std::vector<Layer>& layers() const { return layers_; }
  ggml_tensor* head() const { return head_; }
  std::uint64_t bytes() const { return bytes_; }
  // The type that holds most of the layers' bytes: "bf16".
  std::string type_name() const;

 private:
  MatrixSet() = default;
  Result<ggml_tensor*> add(std::vector<const GgufTensor*> parts, std::optional<ggml_type> type, Executor& executor);
  Result<std::vector<ggml_tensor*>> add_group(std::vector<const GgufTensor*> parts, std::optional<ggml_type> type,
                                              bool stack, Executor& executor);

  ggml_context_ptr context_;
  std::vector<ggml_backend_buffer_ptr> buffers_;
  std::vector<AlignedBuffer> copies_;
  std::vector<Layer> layers_;
  ggml_tensor* head_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace shale
