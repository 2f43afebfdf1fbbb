// Runs prompts through a Model over a pool of its own.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace shale::testing {

// The file of a real model below SHALE_MODEL_DIR, or an empty path.
inline std::filesystem::path real_model(const std::string& name) {
  const char* folder = std::getenv("SHALE_MODEL_DIR");
  if (!folder) return {};
  const std::filesystem::path path = std::filesystem::path(folder) / (name + ".gguf");
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

inline std::vector<Token> random_tokens(std::size_t count, std::uint32_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocabulary);
  return tokens;
}

class ModelRunner {
 public:
  explicit ModelRunner(const std::filesystem::path& path, ModelOptions options = {.threads = 1, .float32 = true},
                       std::size_t pool_bytes = std::size_t{256} << 20)
      : model_(Model::load(path, options).value()), pool_(PagePool::create(model_->page_shape(), pool_bytes).value()) {}

  Model& model() { return *model_; }
  PagePool& pool() { return *pool_; }
  Sequence sequence() { return Sequence(*pool_); }

  // Appends the tokens to the sequence in steps of `chunk`; logits of the last `rows`, [rows][vocabulary].
  std::vector<float> logits(Sequence& sequence, std::span<const Token> tokens, std::size_t rows, std::size_t chunk) {
    std::vector<float> result;
    for (std::size_t done = 0; done < tokens.size(); done += chunk) {
      const auto part = tokens.subspan(done, std::min(chunk, tokens.size() - done));
      sequence.append(static_cast<std::uint32_t>(part.size())).value();
      const std::size_t first = tokens.size() - rows;
      const bool wanted_here = done + part.size() > first;
      const StepSequence step{
          .sequence = &sequence, .tokens = part, .logits_all = wanted_here, .logits_none = !wanted_here};
      const auto all = model_->step({&step, 1}).value();
      if (!wanted_here) continue;
      const std::size_t skipped = first > done ? std::min(first - done, part.size()) : 0;
      const auto wanted = all.subspan(skipped * model_->info().vocabulary);
      result.insert(result.end(), wanted.begin(), wanted.end());
    }
    return result;
  }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
};

}  // namespace shale::testing
