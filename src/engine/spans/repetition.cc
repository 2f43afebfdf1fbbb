#include "engine/spans/repetition.h"

#include <algorithm>

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

}  // namespace

std::uint32_t repetition_tokens_max(std::uint32_t tokens) {
  return std::min(tokens, kRepeatedTokens) + kRepeatRequestTokens;
}

Repetition::Repetition(const Model& model, const Tokenizer& tokenizer, const Sequence& context,
                       std::span<const Token> tokens, std::uint32_t chunk_tokens)
    : tokenizer_(&tokenizer),
      context_(&context),
      tokens_(tokens),
      chunk_tokens_(chunk_tokens),
      capture_(model.info(), context.length() - static_cast<std::uint32_t>(tokens.size()),
               static_cast<std::uint32_t>(tokens.size()), {.repeat_attention = true}) {}

Result<Repetition> Repetition::begin(const Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                     std::span<const Token> tokens) {
  const std::uint32_t context_max = model.info().context_max;
  const std::uint32_t room = context_max - std::min(context_max, context.length() + kRepeatRequestTokens);
  if (const std::uint32_t least = std::min(static_cast<std::uint32_t>(tokens.size()), kChunkTokensMin); room < least) {
    return fail(ErrorCode::kInvalidArgument,
                "{} tokens leave no room in the model's context of {} to repeat them: shorten them by {}",
                context.length(), context_max, least - room);
  }
  return Repetition(model, tokenizer, context, tokens, std::min(room, kRepeatedTokens));
}

bool Repetition::next_turn() {
  sequence_.reset();
  if (next_ == tokens_.size()) return false;
  turn_ = request_for(*tokenizer_, tokens_.first(next_));
  const auto chunk = tokens_.subspan(next_).first(std::min<std::size_t>(chunk_tokens_, tokens_.size() - next_));
  turn_.insert(turn_.end(), chunk.begin(), chunk.end());
  sequence_ = context_->fork();
  next_ += static_cast<std::uint32_t>(chunk.size());
  return true;
}

}  // namespace shale
