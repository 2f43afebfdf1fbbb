// Sentence embeddings by libllama, of a BERT encoder's GGUF file: all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv
// 1908.10084) is the one that quality is measured with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

class SentenceEncoder {
 public:
  // kCorrupt for a file that libllama cannot read, kUnsupported for a model that is no encoder with pooling.
  static Result<std::unique_ptr<SentenceEncoder>> load(const std::filesystem::path& gguf, std::uint32_t threads);
  virtual ~SentenceEncoder() = default;
  // A vector of length 1. Only the first 256 tokens are read, as sentence-transformers does. Not thread-safe.
  virtual Result<std::vector<float>> encode(std::string_view text) = 0;
};

// Both vectors have length 1.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace shale
