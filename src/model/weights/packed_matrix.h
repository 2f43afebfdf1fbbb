// A matrix of weights in BF16, in the order that oneDNN multiplies fastest in on this processor. Where there are tile
// units (AMX) it is several times faster than ggml's own products as soon as there are a few tokens. Activations are
// rounded to BF16 as ggml does it for BF16 weights; sums are FP32. A token's row does not depend on the other rows.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>

#include "core/error.h"
#include "model/weights/weight_memory.h"

namespace shale {

class PackedMatrix {
 public:
  // Whether oneDNN has such products for this processor; and the instruction sets that it uses, as a number. Both may
  // differ where the processor's name is the same: the system decides what of it can be used, and DNNL_MAX_CPU_ISA.
  static bool available();
  static std::uint64_t instruction_sets();

  // `weights`: [rows][columns] in BF16; what is made of them lies in `memory`, which must outlive the matrix.
  // kUnsupported when oneDNN has no such product for this processor; kFull.
  static Result<std::shared_ptr<const PackedMatrix>> pack(const std::byte* weights, std::int64_t columns,
                                                          std::int64_t rows, WeightMemory& memory);
  ~PackedMatrix();

  std::int64_t columns() const;
  std::int64_t rows() const;
  std::uint64_t bytes() const;

  // Adds a node to `context` that multiplies the BF16 rows x, [tokens][columns], to FP32 [tokens][rows]. Any number of
  // threads may compute it. `this` must outlive the graph.
  ggml_tensor* multiply(ggml_context* context, ggml_tensor* x) const;

 private:
  class Products;
  explicit PackedMatrix(std::shared_ptr<Products> products);
  static void run(ggml_tensor* product, int thread, int threads, void* self);

  std::shared_ptr<Products> products_;  // of all matrices of its shape
  std::byte* packed_ = nullptr;
};

}  // namespace shale
