// GGUF files of queries, keys and values, as reference numbers of other libraries come, and of what was made of them.
//
//     l{L}.q           F32 [query heads][tokens][head dimension]   after RoPE; token i at position i
//     l{L}.k, l{L}.v   F32 [KV heads][tokens][head dimension]      keys after RoPE
//
// Layers are numbered from 0 without gaps, and all of one shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "scoring/scorer.h"

namespace shale {

class GgufFile;

class KvFile {
 public:
  // As GgufFile::open; kInvalidArgument names a tensor that is missing, of another type or of a shape that contradicts
  // the others'.
  static Result<KvFile> open(const std::filesystem::path& path);
  ~KvFile();
  KvFile(KvFile&&) noexcept;

  std::uint32_t layers() const { return layers_; }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t kv_heads() const { return kv_heads_; }
  std::uint32_t query_heads() const { return query_heads_; }
  std::uint32_t head_dim() const { return head_dim_; }
  std::span<const float> queries(std::uint32_t layer) const { return data(layer, 'q'); }
  std::span<const float> keys(std::uint32_t layer) const { return data(layer, 'k'); }
  std::span<const float> values(std::uint32_t layer) const { return data(layer, 'v'); }

 private:
  explicit KvFile(std::unique_ptr<GgufFile> file);
  std::span<const float> data(std::uint32_t layer, char part) const;
  Status read();

  std::unique_ptr<GgufFile> file_;
  std::uint32_t layers_ = 0, tokens_ = 0, kv_heads_ = 0, query_heads_ = 0, head_dim_ = 0;
};

struct NamedMatrix {
  std::string name;
  std::vector<float> values;  // [rows][columns]
};

// Writes F32 matrices of one width, beside `path` first, so that a file that stands is whole. kInvalidArgument for a
// name that GGUF cannot hold.
Status write_matrices(const std::filesystem::path& path, std::uint32_t columns, std::span<const NamedMatrix> matrices);

}  // namespace shale
