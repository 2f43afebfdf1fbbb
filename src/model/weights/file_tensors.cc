#include <fmt/format.h>
#include <ggml-cpu.h>

#include <cstring>
#include <unordered_map>

#include "model/weights/weights.h"

namespace shale {
namespace {

class Finder {
 public:
  explicit Finder(const GgufFile& file) : file_(file) {
    for (const GgufTensor& tensor : file.tensors()) by_name_.emplace(tensor.name, &tensor);
  }

  Result<const GgufTensor*> optional_vector(const std::string& name, std::int64_t length) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    SHALE_TRY(check_shape(*found->second, {length, 1, 1, 1}));
    if (found->second->type != GGML_TYPE_F32) {
      return fail(ErrorCode::kUnsupported, "tensor {} is {}; F32 is needed", name, ggml_type_name(found->second->type));
    }
    return found->second;
  }

  Result<const GgufTensor*> vector(const std::string& name, std::int64_t length) const {
    SHALE_ASSIGN(const GgufTensor* tensor, optional_vector(name, length));
    if (!tensor) return fail(ErrorCode::kCorrupt, "tensor {} is missing", name);
    return tensor;
  }

  Result<const GgufTensor*> matrix(const std::string& name, std::int64_t columns, std::int64_t rows) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return fail(ErrorCode::kCorrupt, "tensor {} is missing", name);
    const GgufTensor& tensor = *found->second;
    SHALE_TRY(check_shape(tensor, {columns, rows, 1, 1}));
    const bool readable = tensor.type == GGML_TYPE_F32 || ggml_get_type_traits(tensor.type)->to_float != nullptr;
    if (!readable || !ggml_get_type_traits_cpu(tensor.type)->vec_dot) {
      return fail(ErrorCode::kUnsupported, "tensor {} has type {}, which cannot run on this machine", name,
                  ggml_type_name(tensor.type));
    }
    return &tensor;
  }

  bool has(const std::string& name) const { return by_name_.contains(name); }

 private:
  static Status check_shape(const GgufTensor& tensor, const std::array<std::int64_t, 4>& wanted) {
    if (tensor.shape == wanted) return {};
    return fail(ErrorCode::kCorrupt, "tensor {} has shape {}×{}×{}×{} where {}×{} is needed", tensor.name,
                tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3], wanted[0], wanted[1]);
  }

  const GgufFile& file_;
  std::unordered_map<std::string_view, const GgufTensor*> by_name_;
};

}  // namespace

Result<FileTensors> FileTensors::find(const GgufFile& file, const Hyperparameters& hyper) {
  const Finder finder(file);
  const std::int64_t embedding = hyper.embedding, feed_forward = hyper.feed_forward, query = hyper.query_width(),
                     kv = hyper.kv_width(), vocabulary = hyper.vocabulary;
  FileTensors tensors;
  SHALE_ASSIGN(tensors.token_embedding, finder.matrix("token_embd.weight", embedding, vocabulary));
  SHALE_ASSIGN(tensors.output_norm, finder.vector("output_norm.weight", embedding));
  tensors.head = tensors.token_embedding;
  if (finder.has("output.weight")) {
    SHALE_ASSIGN(tensors.head, finder.matrix("output.weight", embedding, vocabulary));
  }
  if (finder.has("output.bias")) return fail(ErrorCode::kUnsupported, "tensor output.bias is not supported");
  SHALE_ASSIGN(tensors.rope_factors, finder.optional_vector("rope_freqs.weight", hyper.rope_dimensions / 2));

  for (std::uint32_t l = 0; l < hyper.layer_count(); ++l) {
    const auto name = [l](std::string_view part) { return fmt::format("blk.{}.{}", l, part); };
    Layer layer{};
    SHALE_ASSIGN(layer.attention_norm, finder.vector(name("attn_norm.weight"), embedding));
    SHALE_ASSIGN(layer.query, finder.matrix(name("attn_q.weight"), embedding, query));
    SHALE_ASSIGN(layer.key, finder.matrix(name("attn_k.weight"), embedding, kv));
    SHALE_ASSIGN(layer.value, finder.matrix(name("attn_v.weight"), embedding, kv));
    SHALE_ASSIGN(layer.output, finder.matrix(name("attn_output.weight"), query, embedding));
    SHALE_ASSIGN(layer.feed_forward_norm, finder.vector(name("ffn_norm.weight"), embedding));
    SHALE_ASSIGN(layer.gate, finder.matrix(name("ffn_gate.weight"), embedding, feed_forward));
    SHALE_ASSIGN(layer.up, finder.matrix(name("ffn_up.weight"), embedding, feed_forward));
    SHALE_ASSIGN(layer.down, finder.matrix(name("ffn_down.weight"), feed_forward, embedding));
    SHALE_ASSIGN(layer.query_bias, finder.optional_vector(name("attn_q.bias"), query));
    SHALE_ASSIGN(layer.key_bias, finder.optional_vector(name("attn_k.bias"), kv));
    SHALE_ASSIGN(layer.value_bias, finder.optional_vector(name("attn_v.bias"), kv));
    if (hyper.architecture->head_norms) {
      SHALE_ASSIGN(layer.query_norm, finder.vector(name("attn_q_norm.weight"), hyper.head_dim));
      SHALE_ASSIGN(layer.key_norm, finder.vector(name("attn_k_norm.weight"), hyper.head_dim));
    }
    if (hyper.architecture->post_norms) {
      SHALE_ASSIGN(layer.attention_post_norm, finder.vector(name("post_attention_norm.weight"), embedding));
      SHALE_ASSIGN(layer.feed_forward_post_norm, finder.vector(name("post_ffw_norm.weight"), embedding));
    }
    const int biases = (layer.query_bias != nullptr) + (layer.key_bias != nullptr) + (layer.value_bias != nullptr);
    if (biases != 3 && (biases != 0 || hyper.architecture->query_biases)) {
      return fail(ErrorCode::kCorrupt, "layer {} has {} of the 3 biases attn_q, attn_k and attn_v", l, biases);
    }
    // A scale multiplies a whole matrix.
    for (const std::string_view part :
         {"attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias", "attn_q.scale", "attn_k.scale",
          "attn_v.scale", "attn_output.scale", "ffn_gate.scale", "ffn_up.scale", "ffn_down.scale"}) {
      if (finder.has(name(part))) return fail(ErrorCode::kUnsupported, "tensor {} is not supported", name(part));
    }
    tensors.layers.push_back(layer);
  }
  return tensors;
}

void dequantise_rows(const GgufTensor& tensor, std::int64_t row, std::int64_t rows, float* to) {
  const std::size_t row_bytes = ggml_row_size(tensor.type, tensor.shape[0]);
  const std::byte* from = tensor.data.data() + static_cast<std::size_t>(row) * row_bytes;
  if (tensor.type == GGML_TYPE_F32) {
    std::memcpy(to, from, static_cast<std::size_t>(rows) * row_bytes);
  } else {
    ggml_get_type_traits(tensor.type)->to_float(from, to, rows * tensor.shape[0]);
  }
}

}  // namespace shale
