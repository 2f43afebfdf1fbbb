// The attention that a context receives while the model repeats it (KVzip: Kim et al. 2025, arXiv 2505.23416).
#pragma once

#include <cstdint>

#include "model/model.h"
#include "scoring/attention_statistics.h"

namespace shale {

inline constexpr std::uint32_t kRepeatedTokens = 2048;      // of the context, at a time
inline constexpr std::uint32_t kRepeatRequestTokens = 128;  // at most, that ask for it

// Tokens that one turn of observe_repetition appends at most to a copy of a context of `tokens` tokens.
std::uint32_t repetition_tokens_max(std::uint32_t tokens);

// Chunk by chunk, the last tokens of an exact `context`, which are `tokens`, are asked for and given as the model's
// answer, on pages that share the context's and are dropped again; what each receives meanwhile is the result's
// `repeat_attention`. A forward step takes `step_tokens` of them. kInvalidArgument where the model's context has no
// room for a repetition, kFull where the pool has none.
Result<AttentionStatistics> observe_repetition(Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                               std::span<const Token> tokens, std::uint32_t step_tokens);

}  // namespace shale
