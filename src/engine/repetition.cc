#include "engine/repetition.h"

#include <algorithm>

#include "model/capture.h"

namespace shale {

namespace {

constexpr std::uint32_t kChunkTokensMin = 128;  // of a chunk, where the context has as many
constexpr std::uint32_t kRecognisedTokens = 8;  // quoted from the end of the chunk before

std::vector<Token> request_for(const Tokenizer& tokenizer, std::span<const Token> before) {
  const std::string text =
      before.empty()
          ? "\n\nRepeat the previous context exactly.\n\n"
          : fmt::format("\n\nRepeat the part of the previous context exactly, starting with {}\n\n",
                        tokenizer.text(before.last(std::min<std::size_t>(kRecognisedTokens, before.size()))));
  std::vector<Token> request = tokenizer.tokenize(text, false);
  if (request.size() > kRepeatRequestTokens) request.resize(kRepeatRequestTokens);
  return request;
}

Status append_turn(Model& model, Sequence& sequence, std::span<const Token> tokens, std::uint32_t step_tokens,
                   Capture& capture) {
  while (!tokens.empty()) {
    const auto now = tokens.first(std::min<std::size_t>(step_tokens, tokens.size()));
    SHALE_TRY(sequence.append(static_cast<std::uint32_t>(now.size())));
    const StepSequence step{.sequence = &sequence, .tokens = now, .logits_none = true, .capture = &capture};
    SHALE_TRY(model.step({&step, 1}));
    tokens = tokens.subspan(now.size());
  }
  return {};
}

}  // namespace

std::uint32_t repetition_tokens_max(std::uint32_t tokens) {
  return std::min(tokens, kRepeatedTokens) + kRepeatRequestTokens;
}

Result<AttentionStatistics> observe_repetition(Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                               std::span<const Token> tokens, std::uint32_t step_tokens) {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t context_max = model.info().context_max;
  const std::uint32_t room = context_max - std::min(context_max, context.length() + kRepeatRequestTokens);
  if (const std::uint32_t least = std::min(count, kChunkTokensMin); room < least) {
    return fail(ErrorCode::kInvalidArgument,
                "{} tokens leave no room in the model's context of {} to repeat them: shorten them by {}",
                context.length(), context_max, least - room);
  }
  const std::uint32_t chunk_tokens = std::min(room, kRepeatedTokens);
  Capture capture(model.info(), context.length() - count, count, {.repeat_attention = true});
  for (std::uint32_t first = 0; first < count; first += chunk_tokens) {
    std::vector<Token> turn = request_for(tokenizer, tokens.first(first));
    const auto chunk = tokens.subspan(first, std::min(chunk_tokens, count - first));
    turn.insert(turn.end(), chunk.begin(), chunk.end());
    Sequence copy = context.fork();
    SHALE_TRY(append_turn(model, copy, turn, step_tokens, capture));
  }
  return capture.take();
}

}  // namespace shale
