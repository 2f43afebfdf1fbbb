#include <llama-cpp.h>

#include <exception>

#include "core/utf8.h"
#include "model/chat_template.h"
#include "model/deep_stack.h"
#include "model/library_log.h"
#include "model/model.h"
#include "model/special_texts.h"
#include "model/vocabulary_check.h"
#include "model/weights/gguf_file.h"

namespace shale {
namespace {

class LlamaTokenizer final : public Tokenizer {
 public:
  explicit LlamaTokenizer(llama_model_ptr model)
      : model_(std::move(model)), vocabulary_(llama_model_get_vocab(model_.get())) {
    find_special_texts();
  }

  std::vector<Token> tokenize(std::string_view text, bool special) const override {
    const SpecialTexts& taken_out = special ? all_special_ : user_defined_;
    std::vector<Token> tokens;
    while (text.size() > kPartBytes) {
      const std::size_t end = taken_out.cut_after(text, kPartBytes);
      if (end == std::string_view::npos) break;
      const std::vector<Token> part = tokenize_part(text.substr(0, end), special);
      tokens.insert(tokens.end(), part.begin(), part.end());
      text.remove_prefix(end);
    }
    const std::vector<Token> rest = tokenize_part(text, special);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }

  std::string text(std::span<const Token> tokens, bool special) const override {
    std::string result;
    char piece[256];
    for (const Token token : tokens) {
      if (token < 0 || token >= llama_vocab_n_tokens(vocabulary_)) continue;
      const std::int32_t size = llama_token_to_piece(vocabulary_, token, piece, sizeof(piece), 0, special);
      if (size >= 0) {
        result.append(piece, static_cast<std::size_t>(size));
      } else {
        std::string longer(static_cast<std::size_t>(-size), '\0');
        llama_token_to_piece(vocabulary_, token, longer.data(), -size, 0, special);
        result += longer;
      }
    }
    return result;
  }

  bool ends_turn(Token token) const override { return llama_vocab_is_eog(vocabulary_, token); }
  Token bos() const override { return llama_vocab_bos(vocabulary_); }
  bool adds_bos() const override { return llama_vocab_get_add_bos(vocabulary_); }

  Result<std::string> render_chat(std::span<const ChatMessage> messages, bool add_generation_prompt) const override {
    if (!template_) return fail(ErrorCode::kUnsupported, "the model's file has no chat template");
    return template_->render(messages, add_generation_prompt);
  }

  Status set_template(std::string_view source) {
    const auto written = [this](llama_token token) {
      return token < 0 ? std::string_view() : std::string_view(llama_vocab_get_text(vocabulary_, token));
    };
    SHALE_ASSIGN(ChatTemplate parsed, ChatTemplate::parse(source, written(llama_vocab_bos(vocabulary_)),
                                                          written(llama_vocab_eos(vocabulary_))));
    template_.emplace(std::move(parsed));
    return {};
  }

 private:
  static constexpr std::size_t kPartBytes = 1024;
  static constexpr std::size_t kShallowBytes = 4096, kShallowStackBytes = 8 << 20, kStackBytesAByte = 1024;

  // libllama splits texts by regular expressions, which for most BPE vocabularies recurse for every character.
  std::vector<Token> tokenize_part(std::string_view text, bool special) const {
    if (text.size() <= kShallowBytes || llama_vocab_type(vocabulary_) != LLAMA_VOCAB_TYPE_BPE) {
      return tokenize_here(text, special);
    }
    std::vector<Token> tokens;
    const auto work = [&] { tokens = tokenize_here(text, special); };
    if (run_on_stack(kShallowStackBytes + kStackBytesAByte * text.size(), work)) return tokens;
    // Beside a cut tokens may be others than the whole's, but they are the same text.
    while (!text.empty()) {
      const std::string_view piece = utf8_front(text, kShallowBytes);
      const std::vector<Token> part = tokenize_here(piece, special);
      tokens.insert(tokens.end(), part.begin(), part.end());
      text.remove_prefix(piece.size());
    }
    return tokens;
  }

  std::vector<Token> tokenize_here(std::string_view text, bool special) const {
    // No token is shorter than a byte, but a prefix space may be added.
    std::vector<Token> tokens(text.size() + 2);
    for (;;) {
      const std::int32_t count =
          llama_tokenize(vocabulary_, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                         static_cast<std::int32_t>(tokens.size()), /*add_special=*/false, special);
      tokens.resize(static_cast<std::size_t>(std::abs(count)));
      if (count >= 0) return tokens;
    }
  }

  // Texts that libllama takes out of every text, and those that it takes out where control tokens are recognised. Parts
  // of other kinds of vocabulary are not known to be apart.
  void find_special_texts() {
    const auto type = llama_vocab_type(vocabulary_);
    if (type != LLAMA_VOCAB_TYPE_BPE && type != LLAMA_VOCAB_TYPE_SPM) return;
    for (Token token = 0; token < llama_vocab_n_tokens(vocabulary_); ++token) {
      const llama_token_attr kind = llama_vocab_get_attr(vocabulary_, token);
      // It makes control tokens of user-defined ones that look like it, and keeps their first kind as well.
      const bool control = kind & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN);
      const bool user = !control && kind & LLAMA_TOKEN_ATTR_USER_DEFINED;
      if (!user && !control) continue;
      const bool cuts = !(kind & (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP | LLAMA_TOKEN_ATTR_UNKNOWN));
      all_special_.add(llama_vocab_get_text(vocabulary_, token), cuts);
      if (user) user_defined_.add(llama_vocab_get_text(vocabulary_, token), cuts);
    }
  }

  llama_model_ptr model_;
  const llama_vocab* vocabulary_;
  SpecialTexts all_special_, user_defined_;
  std::optional<ChatTemplate> template_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::filesystem::path& path) try {
  silence_libraries();
  SHALE_ASSIGN(const auto file, GgufFile::open(path));
  const std::string where = "model file " + path.string();
  if (auto checked = check_vocabulary(*file); !checked) return fail_in(where, std::move(checked).error());
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model_ptr model(llama_model_load_from_file(path.c_str(), params));
  if (!model) return fail(ErrorCode::kCorrupt, "{}: libllama cannot read the vocabulary", where);
  auto tokenizer = std::make_unique<LlamaTokenizer>(std::move(model));
  auto source = file->text("tokenizer.chat_template");
  if (!source) return fail_in(where, std::move(source).error());
  if (*source) {
    if (auto set = tokenizer->set_template(**source); !set) return fail_in(where, std::move(set).error());
  }
  return tokenizer;
} catch (const std::exception& error) {
  return fail(ErrorCode::kCorrupt, "model file {}: {}", path.string(), error.what());
}

}  // namespace shale
