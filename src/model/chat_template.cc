#include "model/chat_template.h"

#include <jinja/caps.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>

#include <exception>

namespace shale {
namespace {

constexpr std::size_t kTemplateBytesMax = std::size_t{256} << 10;  // the longest known ones have 20 KiB

}  // namespace

struct ChatTemplate::Parsed {
  std::string source, bos, eos;
  jinja::program program;
  bool typed_content = false;  // content is a list of {type, text} instead of a string
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view bos, std::string_view eos) try {
  if (source.size() > kTemplateBytesMax) {
    return fail(ErrorCode::kCorrupt, "the model's chat template has {} bytes; {} are allowed", source.size(),
                kTemplateBytesMax);
  }
  auto parsed = std::make_unique<Parsed>();
  jinja::lexer lexer;
  const jinja::lexer_result tokens = lexer.tokenize(std::string(source));
  parsed->source = tokens.source;
  parsed->bos = bos;
  parsed->eos = eos;
  parsed->program = jinja::parse_from_tokens(tokens);
  const jinja::caps caps = jinja::caps_get(parsed->program);
  parsed->typed_content = caps.supports_typed_content && !caps.supports_string_content;
  return ChatTemplate(std::move(parsed));
} catch (const std::exception& error) {
  return fail(ErrorCode::kCorrupt, "the model's chat template does not parse: {}", error.what());
}

Result<std::string> ChatTemplate::render(std::span<const Tokenizer::ChatMessage> messages,
                                         bool add_generation_prompt) const try {
  const auto text = [](const std::string& value) { return jinja::mk_val<jinja::value_string>(value); };
  auto list = jinja::mk_val<jinja::value_array>();
  for (const Tokenizer::ChatMessage& message : messages) {
    auto entry = jinja::mk_val<jinja::value_object>();
    entry->insert("role", text(message.role));
    if (parsed_->typed_content) {
      auto part = jinja::mk_val<jinja::value_object>();
      part->insert("type", text("text"));
      part->insert("text", text(message.content));
      auto parts = jinja::mk_val<jinja::value_array>();
      parts->push_back(part);
      entry->insert("content", parts);
    } else {
      entry->insert("content", text(message.content));
    }
    list->push_back(entry);
  }
  jinja::context context(parsed_->source);
  context.set_val("messages", list);
  context.set_val("bos_token", text(parsed_->bos));
  context.set_val("eos_token", text(parsed_->eos));
  context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(add_generation_prompt));
  jinja::runtime runtime(context);
  const jinja::value result = runtime.execute(parsed_->program);
  return jinja::runtime::gather_string_parts(result)->as_string().str();
} catch (const std::exception& error) {
  return fail(ErrorCode::kInvalidArgument, "the model's chat template refuses this conversation: {}", error.what());
}

}  // namespace shale
