// A GGUF file, mapped, its metadata parsed by ggml and checked by us.
//
// Nothing in the bytes can trip an assertion: ggml's parser gets a bounded buffer, every accessor checks the stored
// type first, and each tensor's extent is checked against the file before anybody sees a pointer. Immutable and
// thread-safe once open; spans and views live as long as the file.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

struct gguf_context;

namespace shale {

struct GgufTensor {
  std::string name;
  ggml_type type;
  std::array<std::int64_t, 4> shape;  // elements per dimension, the contiguous one first; at least 1 each
  std::span<const std::byte> data;    // aligned to 32 bytes
};

class GgufFile {
 public:
  // kNotFound, kIo, kCorrupt (not a GGUF file, truncated, inconsistent), kUnsupported (alignment below 32).
  static Result<std::unique_ptr<GgufFile>> open(const std::filesystem::path& path);
  // As `open`, for bytes that somebody else holds, aligned to 32 and alive for as long as the file.
  static Result<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes);
  ~GgufFile();

  // An absent key is empty; a key of another type is kCorrupt. Integers of any width that hold no negative value are
  // numbers, floats of either width are reals.
  Result<std::optional<std::uint64_t>> number(const std::string& key) const;
  Result<std::optional<double>> real(const std::string& key) const;
  Result<std::optional<std::string_view>> text(const std::string& key) const;
  // The elements of an array of strings, or nothing.
  Result<std::vector<std::string_view>> texts(const std::string& key) const;
  // The elements of an array of signed 32-bit integers, or nothing.
  Result<std::span<const std::int32_t>> integers(const std::string& key) const;
  // Of 32-bit floats, likewise.
  Result<std::span<const float>> floats(const std::string& key) const;
  // Which elements of an array of booleans or 32-bit integers are not zero; kCorrupt for anything else.
  Result<std::vector<bool>> flags(const std::string& key) const;
  // Whether the key exists, and the number of elements where it is an array.
  bool has(const std::string& key) const;
  std::optional<std::size_t> array_length(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // Null when the file has no such tensor.
  const GgufTensor* tensor(std::string_view name) const;
  std::span<const std::byte> bytes() const { return bytes_; }
  // Everything before the first tensor's data: all metadata, the tokenizer included.
  std::span<const std::byte> metadata() const;

 private:
  GgufFile() = default;
  Status read();
  template <class T>
  Result<std::span<const T>> elements(const std::string& key, int type, std::string_view of) const;

  std::span<const std::byte> bytes_;
  void* mapping_ = nullptr;
  gguf_context* gguf_ = nullptr;
  std::vector<GgufTensor> tensors_;
};

}  // namespace shale
