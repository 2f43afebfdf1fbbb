// How a context and a question become tokens: the chat template's own text around them, the context tokenised on its
// own so that what is stored does not depend on the question.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace shale {

struct PromptParts {
  std::vector<Token> context;   // template head and context
  std::vector<Token> question;  // the question, the rest of the template
  bool templated = true;        // false: the model has no chat template; plain text
};

// One user turn: the context, an empty line, the question. Control tokens are recognised in the template's text alone,
// never in the user's. A `system` message replaces the template's default one. kInvalidArgument when the template fails
// or does not render the user's text exactly once.
Result<PromptParts> make_prompt(const Tokenizer& tokenizer, std::string_view context, std::string_view question,
                                std::string_view system = {});

// A context and what is asked about it: each question follows the context's tokens.
struct AskedContext {
  std::string text = {};  // empty where only its tokens are known
  std::vector<Token> tokens;
  std::vector<std::vector<Token>> questions = {};
};

// Leaves the context's last tokens, those that fill no whole block, to the front of every question: only whole blocks
// are stored, and compressed. kInvalidArgument for a context that has none.
Status keep_whole_blocks(AskedContext& context, std::uint32_t block_tokens);

// A question as the tokens of `asked` were one that followed a stored context: a user's turn of the model's chat
// template where that was one, else text behind an empty line.
std::vector<Token> phrase_like(const Tokenizer& tokenizer, std::span<const Token> asked, std::string_view question);
// The other way round: the words of a question that followed a stored context.
std::string words_of(const Tokenizer& tokenizer, std::span<const Token> asked);

// As make_prompt puts them.
Result<AskedContext> ask(const Tokenizer& tokenizer, std::string_view context, std::span<const std::string> questions);

}  // namespace shale
