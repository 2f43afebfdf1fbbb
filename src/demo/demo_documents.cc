#include "demo/demo_documents.h"

#include <algorithm>
#include <filesystem>

#include "core/text_file.h"
#include "demo/demo_questions.h"
#include "profile/prior_texts.h"
#include "profile/questions.h"

namespace shale {
namespace {

constexpr std::size_t kLicences = 8, kOthers = 4;
constexpr std::uint32_t kQuestionsEach = 3;

std::uint32_t count_tokens(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<std::uint32_t>(tokenizer.tokenize(text, false).size());
}

// The beginning of `text` that fits, in pieces that end with `separator`; empty when not even the first does.
std::string_view fitting(const Tokenizer& tokenizer, std::string_view text, std::string_view separator,
                         std::uint32_t tokens_max) {
  std::size_t end = 0;
  for (std::uint32_t tokens = 0; end < text.size();) {
    const std::size_t at = text.find(separator, end);
    const std::size_t next = at == std::string_view::npos ? text.size() : at + separator.size();
    tokens += count_tokens(tokenizer, text.substr(end, next - end));
    if (tokens > tokens_max) break;
    end = next;
  }
  return text.substr(0, end);
}

Result<DemoDocument> read_document(const Tokenizer& tokenizer, const std::filesystem::path& path,
                                   std::uint32_t tokens_max) {
  SHALE_ASSIGN(const std::string text, read_text(path));
  DemoDocument document;
  document.name = path.filename();
  document.text = cut_to_fit(tokenizer, text, tokens_max);
  document.tokens = count_tokens(tokenizer, document.text);
  if (document.tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: not one line fits in {} tokens", path.string(), tokens_max);
  }
  return document;
}

}  // namespace

std::string_view cut_to_fit(const Tokenizer& tokenizer, std::string_view text, std::uint32_t tokens_max) {
  const std::string_view paragraphs = fitting(tokenizer, text, "\n\n", tokens_max);
  return paragraphs.empty() ? fitting(tokenizer, text, "\n", tokens_max) : paragraphs;
}

Result<std::vector<DemoDocument>> sample_documents(const Tokenizer& tokenizer, std::uint32_t tokens_max) {
  std::vector<DemoDocument> documents;
  for (const LicenceQuestions& licence : licence_questions()) {
    const auto path = std::filesystem::path(kLicenceFolder) / licence.file;
    std::error_code ignored;
    if (documents.size() == kLicences || !std::filesystem::exists(path, ignored)) continue;
    const std::uint32_t longest = documents.size() % 2 == 0 ? tokens_max : tokens_max / 2;
    SHALE_ASSIGN(DemoDocument document, read_document(tokenizer, path, longest));
    document.profiling.assign(licence.profiling.begin(), licence.profiling.end());
    document.requests.assign(licence.requests.begin(), licence.requests.end());
    documents.push_back(std::move(document));
  }
  if (documents.size() < kLicences) {
    return fail(ErrorCode::kNotFound,
                "{} has {} of the {} licence texts that the demo reads: name your own files with --documents",
                kLicenceFolder, documents.size(), kLicences);
  }
  for (const PriorText& text : prior_texts().subspan(1, kOthers)) {  // the first is prose, as licences are
    DemoDocument& document = documents.emplace_back();
    document.name = text.name;
    document.text = cut_to_fit(tokenizer, text.text, tokens_max);
    document.tokens = count_tokens(tokenizer, document.text);
    document.profiling = {std::string(text.questions[0])};
    document.requests = {std::string(text.questions[1])};
  }
  return documents;
}

Result<std::vector<DemoDocument>> user_documents(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                                                 std::uint32_t tokens_max) {
  std::vector<DemoDocument> documents;
  for (const std::string& file : files) {
    SHALE_ASSIGN(DemoDocument document, read_document(tokenizer, file, tokens_max));
    documents.push_back(std::move(document));
  }
  return documents;
}

Status ask_for_questions(Engine& engine, DemoDocument& document) {
  SHALE_ASSIGN(const WrittenQuestions written, write_questions(engine, document.text, 2 * kQuestionsEach));
  document.questions_by_model = written.by_model;
  for (std::size_t i = 0; i < written.questions.size(); ++i) {
    (i % 2 ? document.profiling : document.requests).push_back(written.questions[i]);
  }
  return {};
}

}  // namespace shale
