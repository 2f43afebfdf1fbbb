// How alike two answers are, by several metrics at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "model/sentence_encoder.h"

namespace shale {

// Keeps the embeddings of what it has seen. Not thread-safe.
class AnswerMetrics {
 public:
  AnswerMetrics() = default;  // by words alone
  // Opens the encoder where its model is here; a note says so otherwise.
  static Result<AnswerMetrics> open(const Executor& executor);

  // Scores by name: "f1", "rouge_l", and "cosine" with an encoder.
  Result<std::map<std::string, double>> compare(const std::string& answer, const std::string& reference);

 private:
  Result<const std::vector<float>*> embedding(const std::string& text);

  std::unique_ptr<SentenceEncoder> encoder_;  // null: none
  std::map<std::string, std::vector<float>> embeddings_;
};

}  // namespace shale
