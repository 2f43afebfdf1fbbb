#include "profile/prompt.h"

#include <algorithm>
#include <ranges>
#include <string>

#include "core/parsing.h"
#include "engine/chat_prompt.h"

namespace shale {
namespace {

// Stands for the user's text while the template is rendered: no template contains it. So a template that trims texts
// leaves the user's as it is: context and question are its halves, and tokenised apart.
constexpr std::string_view kMarker = "[[shale-user-text-7d1f]]";

void append(std::vector<Token>& to, const std::vector<Token>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

// What the template puts around the user's text.
struct Frame {
  std::string head, tail;
  bool templated = true;
};

Result<Frame> frame_of(const Tokenizer& tokenizer, std::string_view system) {
  std::vector<Tokenizer::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", std::string(system)});
  messages.push_back({"user", std::string(kMarker)});
  const auto rendered = tokenizer.render_chat(messages, true);
  if (!rendered && rendered.error().code == ErrorCode::kUnsupported) {
    return Frame{system.empty() ? "" : std::string(system) + "\n\n", "\n", false};
  }
  if (!rendered) return std::unexpected(rendered.error());
  const std::size_t at = rendered->find(kMarker);
  if (at == std::string::npos || rendered->find(kMarker, at + 1) != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "the model's chat template does not render the user's text exactly once");
  }
  return Frame{rendered->substr(0, at), rendered->substr(at + kMarker.size())};
}

std::vector<Token> context_tokens(const Tokenizer& tokenizer, const Frame& frame, std::string_view context) {
  std::vector<Token> tokens = tokenizer.tokenize(frame.head, true);
  if (tokenizer.adds_bos() && (tokens.empty() || tokens.front() != tokenizer.bos())) {
    tokens.insert(tokens.begin(), tokenizer.bos());
  }
  append(tokens, tokenizer.tokenize(context, false));
  return tokens;
}

std::vector<Token> question_tokens(const Tokenizer& tokenizer, const Frame& frame, std::string_view context,
                                   std::string_view question) {
  const std::string_view separator = context.empty() ? "" : "\n\n";
  std::vector<Token> tokens = tokenizer.tokenize(std::string(separator) + std::string(question), false);
  append(tokens, tokenizer.tokenize(frame.tail, true));
  return tokens;
}

// What the chat template puts around a user's words that follow a system message.
class UserTurn {
 public:
  explicit UserTurn(const Tokenizer& tokenizer) : tokenizer_(tokenizer), one_(saying("What?")) {
    const std::vector<Token> other = saying("A few more words");
    head_ = static_cast<std::size_t>(std::ranges::mismatch(one_, other).in1 - one_.begin());
    const auto backwards = one_ | std::views::reverse;
    tail_ =
        static_cast<std::size_t>(std::ranges::mismatch(backwards, other | std::views::reverse).in1 - backwards.begin());
  }
  bool is_one(std::span<const Token> asked) const {
    const std::span<const Token> one = one_;
    return !one.empty() && asked.size() >= head_ + tail_ && std::ranges::equal(asked.first(head_), one.first(head_)) &&
           std::ranges::equal(asked.last(tail_), one.last(tail_));
  }
  std::span<const Token> words(std::span<const Token> asked) const {
    return asked.subspan(head_, asked.size() - head_ - tail_);
  }
  std::vector<Token> saying(std::string_view words) const {
    const std::vector<ChatMessage> messages = {{.role = "system", .content = "Context."},
                                               {.role = "user", .content = std::string(words)}};
    const auto spans = chat_prompt(tokenizer_, messages, 0);
    return spans && spans->size() == 2 ? spans->back().tokens : std::vector<Token>();
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<Token> one_;
  std::size_t head_ = 0, tail_ = 0;
};

}  // namespace

Result<PromptParts> make_prompt(const Tokenizer& tokenizer, std::string_view context, std::string_view question,
                                std::string_view system) {
  SHALE_ASSIGN(const Frame frame, frame_of(tokenizer, system));
  return PromptParts{context_tokens(tokenizer, frame, context), question_tokens(tokenizer, frame, context, question),
                     frame.templated};
}

Status keep_whole_blocks(AskedContext& context, std::uint32_t block_tokens) {
  if (context.tokens.size() < block_tokens) {
    return fail(ErrorCode::kInvalidArgument,
                "a context of {} tokens is less than a block of {}: nothing of it is stored", context.tokens.size(),
                block_tokens);
  }
  const auto rest = context.tokens.end() - static_cast<std::ptrdiff_t>(context.tokens.size() % block_tokens);
  for (auto& question : context.questions) question.insert(question.begin(), rest, context.tokens.end());
  context.tokens.erase(rest, context.tokens.end());
  return {};
}

std::vector<Token> phrase_like(const Tokenizer& tokenizer, std::span<const Token> asked, std::string_view question) {
  const UserTurn turn(tokenizer);
  return turn.is_one(asked) ? turn.saying(question) : tokenizer.tokenize("\n\n" + std::string(question) + "\n", false);
}

std::string words_of(const Tokenizer& tokenizer, std::span<const Token> asked) {
  const UserTurn turn(tokenizer);
  const std::string text = tokenizer.text(turn.is_one(asked) ? turn.words(asked) : asked);
  return std::string(trimmed(text));
}

Result<AskedContext> ask(const Tokenizer& tokenizer, std::string_view context, std::span<const std::string> questions) {
  SHALE_ASSIGN(const Frame frame, frame_of(tokenizer, {}));
  AskedContext asked{std::string(context), context_tokens(tokenizer, frame, context), {}};
  for (const std::string& question : questions) {
    asked.questions.push_back(question_tokens(tokenizer, frame, context, question));
  }
  return asked;
}

}  // namespace shale
