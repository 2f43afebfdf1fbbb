// Teacher forcing: the full cache's answers, and what compressed caches would have said in their place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profile/divergence.h"
#include "profile/feed.h"

namespace shale {

// One question and the full cache's answer to it. At each position of the answer some token is fed, the question's last
// one first, and the next one is predicted.
struct Reference {
  std::vector<Token> question;   // the rest of the prompt after the context, without its last token
  std::vector<Token> answer;     // greedy; an end-of-turn token, where it came, is the last
  std::vector<Token> fed;        // the question's last token, then the answer without its last; as long as the answer
  std::vector<Token> predicted;  // what the full cache predicts when fed these: the answer, but for near-ties
  std::vector<float> logits;     // of the full cache, [fed][vocabulary]
};

// A question, at least one token, on top of a context.
struct Asked {
  const Sequence* context = nullptr;
  std::span<const Token> question;
};

// Greedy answers to all of them together, up to `answer_tokens` ≥ 1 tokens each; an end-of-turn token, where it came,
// is the last. kFull when the pool cannot hold them all.
Result<std::vector<std::vector<Token>>> greedy_answers(Model& model, const Tokenizer& tokenizer,
                                                       std::span<const Asked> asked, std::uint32_t answer_tokens,
                                                       const Stop& stop = {});

// Answers every question on `context`, up to `answer_tokens` ≥ 1 tokens each, all together. Questions have at least one
// token. kFull when the pool cannot hold them all.
Result<std::vector<Reference>> answer_questions(Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                                std::span<const std::vector<Token>> questions,
                                                std::uint32_t answer_tokens, const Stop& stop = {});

// Compressed contexts waiting to be asked, together.
class ForcedBatch {
 public:
  // `references` must outlive the batch.
  ForcedBatch(Model& model, std::span<const Reference> references, Stop stop = {})
      : model_(model), references_(references), stop_(std::move(stop)) {}

  // Asks every reference of `context`, which is held until `run`; `results`, one per reference, are written by it.
  void add(const Sequence& context, std::span<Divergence> results);
  // Whether a forward step is filled by what was added.
  bool full() const { return tokens_ >= kStepTokens; }
  bool empty() const { return asks_.empty(); }
  // Free blocks that `run` may need once one more context is added.
  std::uint32_t blocks_needed() const;
  // Asks everything added, and gives all pages back also when it fails.
  Status run();

 private:
  struct Ask {
    Sequence sequence;
    const Reference* reference;
    Divergence* result;
  };
  Model& model_;
  std::span<const Reference> references_;
  Stop stop_;
  std::vector<Ask> asks_;
  std::size_t tokens_ = 0;
};

}  // namespace shale
