// Chat templates as model files give them: Jinja, rendered by llama.cpp's engine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "model/model.h"

namespace shale {

// Parsed once. `render` is thread-safe.
class ChatTemplate {
 public:
  // `bos`, `eos`: the texts of those tokens, which templates may write. kCorrupt: not a template.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view bos, std::string_view eos);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // kInvalidArgument with the template's own words when it raises an error or cannot be evaluated.
  Result<std::string> render(std::span<const Tokenizer::ChatMessage> messages, bool add_generation_prompt) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace shale
