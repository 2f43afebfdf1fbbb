// A tokenizer for tiny test models (vocabulary of 260 or more): a byte is a token, and there is a chat template.
#pragma once

#include "model/model.h"

namespace shale::testing {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr Token kBos = 0, kTurn = 1, kEndOfTurn = 2, kFirstByte = 3;

  // Without a template, render_chat is kUnsupported.
  explicit ByteTokenizer(bool has_template = true) : has_template_(has_template) {}

  // "<turn>" and "<end>" are the control tokens.
  std::vector<Token> tokenize(std::string_view text, bool special) const override {
    std::vector<Token> tokens;
    while (!text.empty()) {
      if (special && text.starts_with("<turn>")) {
        tokens.push_back(kTurn);
        text.remove_prefix(6);
      } else if (special && text.starts_with("<end>")) {
        tokens.push_back(kEndOfTurn);
        text.remove_prefix(5);
      } else {
        tokens.push_back(kFirstByte + static_cast<unsigned char>(text.front()));
        text.remove_prefix(1);
      }
    }
    return tokens;
  }

  std::string text(std::span<const Token> tokens, bool) const override {
    std::string text;
    for (const Token token : tokens) {
      if (token >= kFirstByte && token < kFirstByte + 256) text += static_cast<char>(token - kFirstByte);
    }
    return text;
  }

  bool ends_turn(Token token) const override { return token == kEndOfTurn; }
  Token bos() const override { return kBos; }
  bool adds_bos() const override { return true; }

  Result<std::string> render_chat(std::span<const ChatMessage> messages, bool add_generation_prompt) const override {
    if (!has_template_) return fail(ErrorCode::kUnsupported, "no chat template");
    std::string out;
    if (messages.empty() || messages.front().role != "system") out += "<turn>system:be brief<end>";
    for (const ChatMessage& message : messages) out += "<turn>" + message.role + ":" + message.content + "<end>";
    if (add_generation_prompt) out += "<turn>assistant:";
    return out;
  }

 private:
  bool has_template_;
};

}  // namespace shale::testing
