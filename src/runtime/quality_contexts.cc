#include "runtime/quality_contexts.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "report/output.h"

namespace shale {
namespace {

QualityContext from_json(const Json& json, const std::string& dataset, std::size_t questions_max) {
  QualityContext context;
  context.dataset = json.value("dataset", dataset);
  json.at("id").get_to(context.id);
  json.at("context").get_to(context.text);
  json.at("questions").get_to(context.questions);
  if (json.contains("answers")) json.at("answers").get_to(context.answers);
  if (questions_max > 0) context.questions.resize(std::min(context.questions.size(), questions_max));
  context.answers.resize(context.questions.size());
  return context;
}

}  // namespace

Result<std::vector<QualityContext>> read_quality_contexts(const std::filesystem::path& file, std::size_t contexts_max,
                                                          std::size_t questions_max) {
  std::ifstream in(file);
  if (!in) return fail(ErrorCode::kNotFound, "cannot read contexts from {}", file.string());
  std::vector<QualityContext> contexts;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (contexts_max > 0 && contexts.size() == contexts_max) break;
    if (line.empty()) continue;
    try {
      contexts.push_back(from_json(Json::parse(line), file.stem().string(), questions_max));
    } catch (const Json::exception& error) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: no context with questions: {}", file.string(), number,
                  error.what());
    }
    if (contexts.back().questions.empty() || contexts.back().text.empty()) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: a context without text or questions", file.string(), number);
    }
  }
  if (in.bad()) return fail(ErrorCode::kIo, "{}: reading failed", file.string());
  return contexts;
}

Status check_names(std::span<const QualityContext> contexts) {
  using Name = std::tuple<std::string_view, std::string_view, std::size_t>;
  using Texts = std::pair<std::string_view, std::string_view>;
  std::map<Name, Texts> known;
  for (const QualityContext& context : contexts) {
    for (std::size_t q = 0; q < context.questions.size(); ++q) {
      const Texts texts(context.text, context.questions[q]);
      const auto [same, fresh] = known.emplace(Name(context.dataset, context.id, q), texts);
      if (fresh || same->second == texts) continue;
      return fail(ErrorCode::kInvalidArgument,
                  "--contexts: two contexts of dataset '{}' have the id '{}': give one of them another id, or another "
                  "\"dataset\" (by default it is the file's name)",
                  context.dataset, context.id);
    }
  }
  return {};
}

}  // namespace shale
