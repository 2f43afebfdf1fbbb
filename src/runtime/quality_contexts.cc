#include "runtime/quality_contexts.h"

#include <algorithm>
#include <fstream>

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

}  // namespace shale
