// JSON Lines of what was really said, cut in blocks here: token ids, or text that a tokenizer turns into them.
//
//   {"timestamp": 0, "token_ids": [1, 733, 16289, …], "output_token_ids": [415, …]}
//   {"timestamp": 0, "prompt": "Once upon a time", "output": "there was"}
//
// A block's id is a hash of the id before it and its tokens, so that equal prefixes have equal ids. A prompt's last
// block may be short; where the answer is known, it and the tokens before it fill blocks together, full ones alone.
#include "trace/block_cutter.h"
#include "trace/formats.h"
#include "trace/json_line.h"

namespace shale {
namespace {

enum Field : std::size_t { kTimestamp, kOutputLength, kPrompt, kOutput, kPromptAlias, kOutputAlias };
using Names = std::array<std::string_view, 6>;
constexpr Names kTokenNames = {"timestamp",        "output_length",    "token_ids",
                               "output_token_ids", "prompt_token_ids", "completion_token_ids"};
constexpr Names kTextNames = {"timestamp", "output_length", "prompt", "output", "text", "response"};

class TokenReader : public LineTraceReader {
 public:
  TokenReader(LineSource lines, const TraceOptions& options) : TokenReader(std::move(lines), options, kTokenNames) {}

  std::string_view format() const override { return "tokens"; }
  std::uint32_t block_tokens() const final { return block_tokens_; }

 protected:
  TokenReader(LineSource lines, const TraceOptions& options, const Names& names)
      : LineTraceReader(std::move(lines), options),
        json_(lines_),
        names_(names),
        block_tokens_(options.block_tokens ? options.block_tokens : kBlockTokensDefault),
        to_seconds_(options.timestamps == TimestampUnit::kSeconds ? 1 : 1e-3),
        cutter_(block_tokens_) {}

  virtual Status read_tokens(JsonValue value, std::vector<std::int32_t>& tokens) {
    return json_.array(value, [&](JsonValue element) -> Status {
      std::uint32_t token = 0;
      SHALE_TRY(json_.count(element, token, std::numeric_limits<std::int32_t>::max()));
      tokens.push_back(static_cast<std::int32_t>(token));
      return {};
    });
  }

  JsonLine json_;

 private:
  Result<bool> read(RawRequest& request) final {
    SHALE_ASSIGN(const bool more, lines_.next());
    if (!more) return false;
    prompt_.clear();
    output_.clear();
    double time = 0;
    const auto on_field = [&](std::size_t field, JsonValue value) -> Status {
      switch (field) {
        case kTimestamp:
          return json_.number(value, time);
        case kOutputLength:
          return json_.count(value, request.output_tokens);
        case kPrompt:
        case kPromptAlias:
          return read_tokens(value, prompt_);
        default:
          return read_tokens(value, output_);
      }
    };
    SHALE_ASSIGN(const JsonPlaces places, json_.object(names_, on_field));
    const char* line = lines_.line().data();
    if (!places[kTimestamp]) return json_.fail_at(line, "\"timestamp\" is missing; write 0 where times do not matter");
    if (!places[kPrompt] == !places[kPromptAlias]) {
      return json_.fail_at(line, "either \"{}\" or \"{}\" is expected", names_[kPrompt], names_[kPromptAlias]);
    }
    if (places[kOutput] && places[kOutputAlias]) {
      return json_.fail_at(line, "\"{}\" and \"{}\" exclude each other", names_[kOutput], names_[kOutputAlias]);
    }
    const bool has_output = places[kOutput] || places[kOutputAlias];
    if (has_output) request.output_tokens = static_cast<std::uint32_t>(output_.size());
    SHALE_TRY(check_room(blocks_of(prompt_.size() + output_.size(), block_tokens_), line));
    cutter_.cut(prompt_, output_, has_output, request);
    SHALE_ASSIGN(request.arrival_s, arrival(time * to_seconds_, places[kTimestamp]));
    return true;
  }

  const Names& names_;
  std::uint32_t block_tokens_;
  double to_seconds_;
  BlockCutter cutter_;
  std::vector<std::int32_t> prompt_, output_;
};

class TextReader final : public TokenReader {
 public:
  TextReader(LineSource lines, const TraceOptions& options)
      : TokenReader(std::move(lines), options, kTextNames), tokenize_(options.tokenize) {}

  std::string_view format() const override { return "text"; }

 private:
  Status read_tokens(JsonValue value, std::vector<std::int32_t>& tokens) override {
    const char* at = JsonLine::place(value);
    std::string_view text;
    SHALE_TRY(json_.string(value, text));
    auto found = tokenize_(text);
    if (!found) return json_.fail_at(at, "{}", found.error().message);
    tokens = std::move(*found);
    return {};
  }

  Tokenize tokenize_;
};

}  // namespace

ReaderResult read_tokens(LineSource lines, const TraceOptions& options) {
  return start_reader<TokenReader>(std::move(lines), options);
}

ReaderResult read_text(LineSource lines, const TraceOptions& options) {
  if (!options.tokenize) {
    return fail(ErrorCode::kInvalidArgument,
                "{} holds text, and how many tokens that is only a model can tell; name one", lines.file());
  }
  return start_reader<TextReader>(std::move(lines), options);
}

}  // namespace shale
