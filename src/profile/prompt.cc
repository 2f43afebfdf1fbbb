#include "profile/prompt.h"

#include <string>

namespace shale {
namespace {

// Stands for the user's text while the template is rendered: no template changes or contains it.
constexpr std::string_view kMarker = "[[shale-user-text-7d1f]]";

void append(std::vector<Token>& to, const std::vector<Token>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

}  // namespace

Result<PromptParts> make_prompt(const Tokenizer& tokenizer, std::string_view context, std::string_view question,
                                std::string_view system) {
  std::vector<Tokenizer::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", std::string(system)});
  messages.push_back({"user", std::string(kMarker)});

  PromptParts parts;
  std::string head, tail;
  if (const auto rendered = tokenizer.render_chat(messages, true)) {
    const std::size_t at = rendered->find(kMarker);
    if (at == std::string::npos || rendered->find(kMarker, at + 1) != std::string::npos) {
      return fail(ErrorCode::kInvalidArgument,
                  "the model's chat template does not render the user's text exactly once");
    }
    head = rendered->substr(0, at);
    tail = rendered->substr(at + kMarker.size());
  } else if (rendered.error().code == ErrorCode::kUnsupported) {
    parts.templated = false;
    if (!system.empty()) head = std::string(system) + "\n\n";
    tail = "\n";
  } else {
    return std::unexpected(rendered.error());
  }

  parts.context = tokenizer.tokenize(head, true);
  if (tokenizer.adds_bos() && (parts.context.empty() || parts.context.front() != tokenizer.bos())) {
    parts.context.insert(parts.context.begin(), tokenizer.bos());
  }
  append(parts.context, tokenizer.tokenize(context, false));
  const std::string_view separator = context.empty() ? "" : "\n\n";
  parts.question = tokenizer.tokenize(std::string(separator) + std::string(question), false);
  append(parts.question, tokenizer.tokenize(tail, true));
  return parts;
}

Result<AskedContext> ask(const Tokenizer& tokenizer, std::string_view context, std::span<const std::string> questions) {
  SHALE_ASSIGN(PromptParts unasked, make_prompt(tokenizer, context, {}));
  AskedContext asked{std::string(context), std::move(unasked.context), {}};
  for (const std::string& question : questions) {
    SHALE_ASSIGN(PromptParts parts, make_prompt(tokenizer, context, question));
    asked.questions.push_back(std::move(parts.question));
  }
  return asked;
}

}  // namespace shale
