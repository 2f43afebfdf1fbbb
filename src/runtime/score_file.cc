#include "runtime/score_file.h"

#include <ggml-cpp.h>
#include <gguf.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "model/weights/gguf_file.h"

namespace shale {
namespace {

constexpr std::int64_t kLargest = 1 << 24;  // of a dimension

std::string name_of(std::uint32_t layer, char part) { return fmt::format("l{}.{}", layer, part); }

struct Shape {
  std::int64_t heads, tokens, head_dim;
  bool operator==(const Shape&) const = default;
};

Result<Shape> shape_of(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.tensor(name);
  if (!tensor) return fail(ErrorCode::kInvalidArgument, "tensor {} is missing", name);
  if (tensor->type != GGML_TYPE_F32) {
    return fail(ErrorCode::kInvalidArgument, "tensor {} is {}; F32 is wanted", name, ggml_type_name(tensor->type));
  }
  const Shape shape{tensor->shape[2], tensor->shape[1], tensor->shape[0]};
  if (tensor->shape[3] != 1 || std::max({shape.heads, shape.tokens, shape.head_dim}) > kLargest) {
    return fail(ErrorCode::kInvalidArgument,
                "tensor {} is {} x {} x {} x {}; heads x tokens x head dimension is wanted", name, tensor->shape[3],
                shape.heads, shape.tokens, shape.head_dim);
  }
  return shape;
}

Status expect(const GgufFile& file, const std::string& name, const Shape& wanted) {
  SHALE_ASSIGN(const Shape shape, shape_of(file, name));
  if (shape == wanted) return {};
  return fail(ErrorCode::kInvalidArgument, "tensor {} is {} x {} x {}; beside the others {} x {} x {} is wanted", name,
              shape.heads, shape.tokens, shape.head_dim, wanted.heads, wanted.tokens, wanted.head_dim);
}

}  // namespace

KvFile::KvFile(std::unique_ptr<GgufFile> file) : file_(std::move(file)) {}
KvFile::~KvFile() = default;
KvFile::KvFile(KvFile&&) noexcept = default;

Result<KvFile> KvFile::open(const std::filesystem::path& path) {
  SHALE_ASSIGN(auto gguf, GgufFile::open(path));
  KvFile file(std::move(gguf));
  if (auto status = file.read(); !status) return fail_in(path.string(), std::move(status).error());
  return file;
}

Status KvFile::read() {
  SHALE_ASSIGN(const Shape keys, shape_of(*file_, name_of(0, 'k')));
  SHALE_ASSIGN(const Shape queries, shape_of(*file_, name_of(0, 'q')));
  const Shape wanted{queries.heads, keys.tokens, keys.head_dim};
  for (layers_ = 0; layers_ == 0 || file_->tensor(name_of(layers_, 'k')); ++layers_) {
    SHALE_TRY(expect(*file_, name_of(layers_, 'k'), keys));
    SHALE_TRY(expect(*file_, name_of(layers_, 'v'), keys));
    SHALE_TRY(expect(*file_, name_of(layers_, 'q'), wanted));
  }
  if (queries.heads % keys.heads != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} query heads of l0.q do not share {} KV heads of l0.k evenly",
                queries.heads, keys.heads);
  }
  if (keys.head_dim % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "the head dimension of l0.k is odd: {}", keys.head_dim);
  }
  tokens_ = static_cast<std::uint32_t>(keys.tokens);
  kv_heads_ = static_cast<std::uint32_t>(keys.heads);
  query_heads_ = static_cast<std::uint32_t>(queries.heads);
  head_dim_ = static_cast<std::uint32_t>(keys.head_dim);
  return {};
}

std::span<const float> KvFile::data(std::uint32_t layer, char part) const {
  const std::span<const std::byte> bytes = file_->tensor(name_of(layer, part))->data;
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Status write_matrices(const std::filesystem::path& path, std::uint32_t columns, std::span<const NamedMatrix> matrices) {
  const gguf_context_ptr gguf(gguf_init_empty());
  std::vector<ggml_context_ptr> contexts;
  for (const NamedMatrix& matrix : matrices) {
    if (matrix.name.size() >= GGML_MAX_NAME) {
      return fail(ErrorCode::kInvalidArgument, "'{}' is too long for a tensor's name", matrix.name);
    }
    const std::size_t bytes = matrix.values.size() * sizeof(float);
    contexts.emplace_back(
        ggml_init({.mem_size = bytes + ggml_tensor_overhead() + 64, .mem_buffer = nullptr, .no_alloc = false}));
    if (!contexts.back()) return fail(ErrorCode::kInternal, "no memory for {}", matrix.name);
    ggml_tensor* tensor = ggml_new_tensor_2d(contexts.back().get(), GGML_TYPE_F32, columns,
                                             static_cast<std::int64_t>(matrix.values.size() / columns));
    ggml_set_name(tensor, matrix.name.c_str());
    std::memcpy(tensor->data, matrix.values.data(), bytes);
    gguf_add_tensor(gguf.get(), tensor);
  }
  const std::filesystem::path unfinished = path.string() + ".unfinished";
  std::error_code failed;
  if (gguf_write_to_file(gguf.get(), unfinished.c_str(), false)) {
    std::filesystem::rename(unfinished, path, failed);
    if (!failed) return {};
  }
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  return fail(ErrorCode::kIo, "{} cannot be written{}{}", path.string(), failed ? ": " : "",
              failed ? failed.message() : "");
}

}  // namespace shale
