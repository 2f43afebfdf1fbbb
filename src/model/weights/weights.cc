#include "model/weights/weights.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "core/aligned_buffer.h"

namespace shale {
namespace {

// Buffer types of the CPU backend that hold matrices in an order of their own.
std::vector<ggml_backend_buffer_type_t> repacking_buffer_types() {
  std::vector<ggml_backend_buffer_type_t> types;
  ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  auto* get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
  if (!get) return types;
  for (ggml_backend_buffer_type_t* type = get(cpu); type && *type; ++type) types.push_back(*type);
  return types;
}

// The first repacking buffer type in which this matrix can be multiplied, or null: asked with an empty buffer.
ggml_backend_buffer_type_t repacking_for(ggml_type type, std::int64_t columns, std::int64_t rows) {
  ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  for (ggml_backend_buffer_type_t buffer_type : repacking_buffer_types()) {
    ggml_context_ptr context(
        ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* matrix = ggml_new_tensor_2d(context.get(), type, columns, rows);
    ggml_tensor* vector = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, 512);
    ggml_tensor* product = ggml_mul_mat(context.get(), matrix, vector);
    const ggml_backend_buffer_ptr empty(ggml_backend_buft_alloc_buffer(buffer_type, 0));
    matrix->buffer = empty.get();
    if (empty && ggml_backend_dev_supports_op(cpu, product)) return buffer_type;
  }
  return nullptr;
}

// The type that copies are made in; none: the file's.
std::optional<ggml_type> ggml_type_of(RunType type) {
  switch (type) {
    case RunType::kFile:
      return std::nullopt;
    case RunType::kF32:
      return GGML_TYPE_F32;
    case RunType::kBf16:
    case RunType::kBf16Packed:
      return GGML_TYPE_BF16;
    case RunType::kQ8:
      return GGML_TYPE_Q8_0;
  }
  return std::nullopt;
}

// Rows that one piece of conversion work takes: enough to amortise its start, few enough to balance.
constexpr std::int64_t kRowsPerPiece = 64;

void convert(const GgufTensor& tensor, ggml_type type, std::byte* to, Executor& executor) {
  const std::size_t row_bytes = ggml_row_size(type, tensor.shape[0]);
  const std::int64_t rows = tensor.shape[1];
  if (type == tensor.type) {
    std::memcpy(to, tensor.data.data(), tensor.data.size());
    return;
  }
  executor.parallel_for(static_cast<std::size_t>((rows + kRowsPerPiece - 1) / kRowsPerPiece), [&](std::size_t piece) {
    const std::int64_t first = static_cast<std::int64_t>(piece) * kRowsPerPiece;
    const std::int64_t count = std::min(kRowsPerPiece, rows - first);
    std::byte* target = to + static_cast<std::size_t>(first) * row_bytes;
    if (type == GGML_TYPE_F32) {
      dequantise_rows(tensor, first, count, reinterpret_cast<float*>(target));
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(count * tensor.shape[0]));
    dequantise_rows(tensor, first, count, values.data());
    ggml_quantize_chunk(type, values.data(), target, 0, count, tensor.shape[0], nullptr);
  });
}

std::string name_of_most(const std::map<ggml_type, std::size_t>& bytes) {
  return ggml_type_name(std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; })->first);
}

}  // namespace

std::string_view to_string(RunType type) {
  switch (type) {
    case RunType::kFile:
      return "file";
    case RunType::kF32:
      return "f32";
    case RunType::kBf16:
      return "bf16";
    case RunType::kBf16Packed:
      return "bf16-packed";
    case RunType::kQ8:
      return "q8_0";
  }
  return "file";
}

std::string main_type_name(const FileTensors& file) {
  std::map<ggml_type, std::size_t> bytes;
  for (const FileTensors::Layer& layer : file.layers) {
    for (const GgufTensor* tensor :
         {layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down}) {
      bytes[tensor->type] += tensor->data.size();
    }
  }
  return name_of_most(bytes);
}

Vectors::Vectors(const FileTensors& file, const Hyperparameters& hyper) {
  const std::size_t count = 6 * file.layers.size() + 2;
  const std::size_t floats =
      file.layers.size() * (4 * hyper.embedding + 2 * hyper.qkv_width()) + hyper.embedding + hyper.rope_dimensions;
  context_.reset(ggml_init({.mem_size = count * (ggml_tensor_overhead() + 64) + floats * sizeof(float),
                            .mem_buffer = nullptr,
                            .no_alloc = false}));
  const auto join = [this](std::vector<const GgufTensor*> parts) {
    std::int64_t length = 0;
    for (const GgufTensor* part : parts) length += part->shape[0];
    ggml_tensor* tensor = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, length);
    auto* to = static_cast<std::byte*>(tensor->data);
    for (const GgufTensor* part : parts) to = std::ranges::copy(part->data, to).out;
    return tensor;
  };
  for (const FileTensors::Layer& layer : file.layers) {
    std::vector<const GgufTensor*> head_norms(hyper.query_heads, layer.query_norm);
    head_norms.resize(hyper.query_heads + hyper.kv_heads, layer.key_norm);
    layers.push_back(
        {.attention_norm = join({layer.attention_norm}),
         .feed_forward_norm = join({layer.feed_forward_norm}),
         .qkv_bias = layer.query_bias ? join({layer.query_bias, layer.key_bias, layer.value_bias}) : nullptr,
         .head_norms = layer.query_norm ? join(std::move(head_norms)) : nullptr,
         .attention_post_norm = layer.attention_post_norm ? join({layer.attention_post_norm}) : nullptr,
         .feed_forward_post_norm = layer.feed_forward_post_norm ? join({layer.feed_forward_post_norm}) : nullptr});
  }
  output_norm = join({file.output_norm});
  rope_factors = file.rope_factors ? join({file.rope_factors}) : nullptr;
}

Result<MatrixSet> MatrixSet::create(const FileTensors& file, RunType type, bool stack, std::uint32_t layers,
                                    Executor& executor) try {
  MatrixSet set;
  const std::size_t count = layers ? std::min<std::size_t>(layers, file.layers.size()) : file.layers.size();
  set.context_.reset(
      ggml_init({.mem_size = (7 * count + 1) * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  for (const FileTensors::Layer& from : std::span(file.layers).first(count)) {
    Layer layer{};
    SHALE_ASSIGN(layer.qkv, set.add_group({from.query, from.key, from.value}, type, stack, executor));
    SHALE_ASSIGN(layer.gate_up, set.add_group({from.gate, from.up}, type, stack, executor));
    SHALE_ASSIGN(layer.output, set.add({from.output}, type, executor));
    SHALE_ASSIGN(layer.down, set.add({from.down}, type, executor));
    set.layers_.push_back(std::move(layer));
  }
  if (layers == 0) {
    SHALE_ASSIGN(set.head_, set.add({file.head}, type, executor));
  }
  return set;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kFull, "not enough memory for the model's weights");
}

Result<std::vector<Matrix>> MatrixSet::add_group(std::vector<const GgufTensor*> parts, RunType type, bool stack,
                                                 Executor& executor) {
  const bool alike = std::ranges::all_of(parts, [&](const GgufTensor* part) { return part->type == parts[0]->type; });
  std::vector<Matrix> matrices;
  if (type != RunType::kFile || (stack && alike)) {
    SHALE_ASSIGN(matrices.emplace_back(), add(std::move(parts), type, executor));
    return matrices;
  }
  for (const GgufTensor* part : parts) {
    SHALE_ASSIGN(matrices.emplace_back(), add({part}, type, executor));
  }
  return matrices;
}

// Parts have the same number of columns and, where they stay as in the file, the same type.
Result<Matrix> MatrixSet::add(std::vector<const GgufTensor*> parts, RunType type, Executor& executor) {
  std::int64_t rows = 0;
  for (const GgufTensor* part : parts) rows += part->shape[1];
  const std::int64_t columns = parts[0]->shape[0];
  // Rows that the wanted type's blocks do not divide stay as they are in the file, or become BF16 to be stacked.
  ggml_type target = ggml_type_of(type).value_or(parts[0]->type);
  if (columns % ggml_blck_size(target) != 0) target = parts.size() == 1 ? parts[0]->type : GGML_TYPE_BF16;
  ggml_tensor* tensor = ggml_new_tensor_2d(context_.get(), target, columns, rows);
  const std::size_t size = ggml_nbytes(tensor);
  const auto convert_to = [&](std::byte* to) {
    for (const GgufTensor* part : parts) {
      convert(*part, target, to, executor);
      to += ggml_row_size(target, columns) * static_cast<std::size_t>(part->shape[1]);
    }
  };
  ggml_backend_buffer_type_t repacking = type == RunType::kBf16Packed ? nullptr : repacking_for(target, columns, rows);
  if (type != RunType::kBf16Packed && !repacking) {
    bytes_ += size;
    std::byte* to = memory_.allocate(size);
    convert_to(to);
    tensor->data = to;
    return Matrix{.tensor = tensor};
  }
  AlignedBuffer copy(size);
  convert_to(copy.data());
  if (type == RunType::kBf16Packed) {
    SHALE_ASSIGN(auto packed, PackedMatrix::pack(copy.data(), columns, rows, memory_));
    bytes_ += packed->bytes();
    return Matrix{.packed = std::move(packed)};
  }
  bytes_ += size;
  ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(repacking, size));
  if (!buffer) return fail(ErrorCode::kFull, "not enough memory for the model's weights");
  ggml_backend_tensor_alloc(buffer.get(), tensor, ggml_backend_buffer_get_base(buffer.get()));
  ggml_backend_tensor_set(tensor, copy.data(), 0, size);
  buffers_.push_back(std::move(buffer));
  return Matrix{.tensor = tensor};
}

std::string MatrixSet::type_name() const {
  if (layers_[0].output.packed) return std::string(to_string(RunType::kBf16Packed));
  std::map<ggml_type, std::size_t> bytes;
  const auto count = [&](const Matrix& matrix) { bytes[matrix.tensor->type] += ggml_nbytes(matrix.tensor); };
  for (const Layer& layer : layers_) {
    for (const Matrix& matrix : layer.qkv) count(matrix);
    for (const Matrix& matrix : layer.gate_up) count(matrix);
    count(layer.output);
    count(layer.down);
  }
  return name_of_most(bytes);
}

}  // namespace shale
