#include "trace/questions.h"

#include "trace/block_cutter.h"
#include "trace/formats.h"
#include "trace/json_line.h"
#include "trace/random.h"

namespace shale {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Document {
  Tokens context;
  std::vector<Tokens> questions;
  std::vector<std::uint32_t> answer_tokens;  // as many as questions, or none
};

class DocumentReader {
 public:
  explicit DocumentReader(const QuestionOptions& options) : options_(options) {}

  Status read(const std::filesystem::path& file, std::vector<Document>& documents) {
    SHALE_ASSIGN(LineSource lines, LineSource::open(file, options_.limits.line_bytes_max));
    JsonLine json(lines);
    for (;;) {
      SHALE_ASSIGN(const bool more, lines.next());
      if (!more) return {};
      SHALE_TRY(read_line(json, lines, documents.emplace_back()));
    }
  }

 private:
  enum Field : std::size_t { kContext, kQuestions, kAnswers };
  static constexpr std::array<std::string_view, 3> kNames = {"context", "questions", "answers"};

  Status read_line(JsonLine& json, const LineSource& lines, Document& document) const {
    SHALE_ASSIGN(const JsonPlaces places, json.object(kNames, [&](std::size_t field, JsonValue value) -> Status {
      if (field == kContext) return tokenize(json, value, "", document.context);
      if (field == kQuestions) {
        return json.array(value,
                          [&](JsonValue v) { return tokenize(json, v, "\n\n", document.questions.emplace_back()); });
      }
      return json.array(value,
                        [&](JsonValue v) { return read_answer(json, v, document.answer_tokens.emplace_back()); });
    }));
    for (const Field field : {kContext, kQuestions}) {
      if (!places[field]) return json.fail_at(lines.line().data(), "\"{}\" is missing", kNames[field]);
    }
    if (!document.answer_tokens.empty() && document.answer_tokens.size() != document.questions.size()) {
      return json.fail_at(places[kAnswers], "{} answers to {} questions", document.answer_tokens.size(),
                          document.questions.size());
    }
    return {};
  }

  Status read_answer(JsonLine& json, JsonValue value, std::uint32_t& tokens) const {
    Tokens answer;
    bool is_first = true;
    if (*JsonLine::place(value) != '[') {
      SHALE_TRY(tokenize(json, value, "", answer));
    } else {
      SHALE_TRY(json.array(value, [&](JsonValue one) {
        return std::exchange(is_first, false) ? tokenize(json, one, "", answer) : json.skip(one);
      }));
    }
    tokens = static_cast<std::uint32_t>(answer.size());
    return {};
  }

  Status tokenize(JsonLine& json, JsonValue value, std::string_view before, Tokens& out) const {
    const char* at = JsonLine::place(value);
    std::string_view text;
    SHALE_TRY(json.string(value, text));
    auto tokens = options_.tokenize(std::string(before).append(text));
    if (!tokens) return json.fail_at(at, "{}", tokens.error().message);
    out = std::move(*tokens);
    return {};
  }

  const QuestionOptions& options_;
};

class QuestionReader final : public TraceReader {
 public:
  QuestionReader(std::vector<Document> documents, const QuestionOptions& options)
      : documents_(std::move(documents)), options_(options), cutter_(options.block_tokens) {
    for (std::uint64_t repeat = 0; repeat < options.repeats; ++repeat) {
      for (std::uint32_t i = 0; i < documents_.size(); ++i) {
        for (std::uint32_t k = 0; k < documents_[i].questions.size(); ++k) order_.push_back({i, k});
      }
    }
    Random random(options.seed);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  }

  bool is_empty() const { return order_.empty(); }

  std::string_view format() const override { return "questions"; }
  std::uint32_t block_tokens() const override { return options_.block_tokens; }

  Result<bool> next(RawRequest& request) override {
    if (asked_ == order_.size()) return false;
    const auto [which, question] = order_[asked_];
    const Document& document = documents_[which];
    prompt_ = document.context;
    prompt_.insert(prompt_.end(), document.questions[question].begin(), document.questions[question].end());
    cutter_.cut(prompt_, {}, false, request);
    request.output_tokens = document.answer_tokens.empty() ? 0 : document.answer_tokens[question];
    request.arrival_s = static_cast<double>(asked_++ / options_.batch) * options_.batch_gap_s;
    return true;
  }

 private:
  struct Asked {
    std::uint32_t document, question;
  };

  std::vector<Document> documents_;
  QuestionOptions options_;
  BlockCutter cutter_;
  std::vector<Asked> order_;
  std::size_t asked_ = 0;
  Tokens prompt_;
};

}  // namespace

Result<std::unique_ptr<TraceReader>> ask_questions(std::span<const std::filesystem::path> files,
                                                   const QuestionOptions& options) {
  if (!options.tokenize) {
    return fail(ErrorCode::kInvalidArgument, "how many tokens a text has only a model can tell; name one");
  }
  const bool has_sizes = options.block_tokens > 0 && options.block_tokens <= kBlockTokensMax && options.batch > 0;
  if (!has_sizes || !(options.batch_gap_s >= 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "a block has 1 to {} tokens, a batch a request at least, and batches come at least 0 s apart",
                kBlockTokensMax);
  }
  std::vector<Document> documents;
  for (const auto& file : files) SHALE_TRY(DocumentReader(options).read(file, documents));
  auto reader = std::make_unique<QuestionReader>(std::move(documents), options);
  if (reader->is_empty()) return fail(ErrorCode::kInvalidArgument, "the documents come without a question");
  return reader;
}

}  // namespace shale
