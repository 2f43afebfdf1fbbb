// The attention that a context receives while the model repeats it (KVzip: Kim et al. 2025, arXiv 2505.23416).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/capture.h"
#include "model/model.h"
#include "scoring/attention_statistics.h"

namespace shale {

inline constexpr std::uint32_t kRepeatedTokens = 2048;      // of the context, at a time
inline constexpr std::uint32_t kRepeatRequestTokens = 128;  // at most, that ask for it

// Tokens that one turn of a repetition appends at most to a copy of a context of `tokens` tokens.
std::uint32_t repetition_tokens_max(std::uint32_t tokens);

// Chunk by chunk, the last tokens of an exact context are asked for and given as the model's answer: a turn for each
// chunk, on pages that share the context's. Whoever computes the turns may do something else between steps. Not
// thread-safe.
class Repetition {
 public:
  // The context's last tokens are `tokens`. Both must outlive it, as must the model and the tokenizer.
  // kInvalidArgument where the model's context has no room for a repetition.
  static Result<Repetition> begin(const Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                  std::span<const Token> tokens);

  // The next turn, in place of the one before, whose pages are dropped; false after the last.
  bool next_turn();
  // What is to be appended to `sequence` in this turn, watched by `capture`.
  std::span<const Token> turn() const { return turn_; }
  Sequence& sequence() { return *sequence_; }
  const Sequence& sequence() const { return *sequence_; }
  Capture& capture() { return capture_; }
  // `repeat_attention`, once all turns are computed.
  AttentionStatistics take() { return capture_.take(); }

 private:
  Repetition(const Model& model, const Tokenizer& tokenizer, const Sequence& context, std::span<const Token> tokens,
             std::uint32_t chunk_tokens);

  const Tokenizer* tokenizer_;
  const Sequence* context_;
  std::span<const Token> tokens_;
  std::uint32_t chunk_tokens_;
  std::uint32_t next_ = 0;  // token of the next turn's chunk
  std::vector<Token> turn_;
  std::optional<Sequence> sequence_;
  Capture capture_;
};

}  // namespace shale
