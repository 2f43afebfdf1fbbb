#include "report/quality_rows.h"

#include <cmath>
#include <fstream>

#include "core/text_file.h"

namespace shale {
namespace {

QualityRow from_json(const Json& json) {
  QualityRow row;
  const auto read = [&](const char* name, auto& value) { json.at(name).get_to(value); };
  read("model", row.model);
  read("dataset", row.dataset);
  read("context", row.context);
  read("question", row.question);
  read("question_seen", row.question_seen);
  read("method", row.method);
  read("keep", row.keep);
  read("bits", row.bits);
  read("tokens", row.tokens);
  read("tokens_cut", row.tokens_cut);
  read("bytes", row.bytes);
  read("full_bytes", row.full_bytes);
  read("agreement", row.agreement);
  // JSON has no infinity.
  row.kl = json.at("kl").is_null() ? INFINITY : json.at("kl").get<double>();
  if (json.contains("texts")) {
    read("answer_tokens", row.answer_tokens);
    read("window", row.window);
    read("context_tokens_max", row.context_tokens_max);
    read("texts", row.texts);
  }
  if (json.contains("kind")) read("kind", row.kind);
  if (json.contains("answer")) read("answer", row.answer);
  if (json.contains("text")) read("text", row.text);
  if (json.contains("predicted")) read("predicted", row.predicted);
  if (json.contains("seconds")) read("seconds", row.seconds);
  return row;
}

}  // namespace

Json to_json(const QualityRow& row) {
  Json json = {{"model", row.model},
               {"dataset", row.dataset},
               {"context", row.context},
               {"question", row.question},
               {"question_seen", row.question_seen},
               {"method", row.method},
               {"keep", row.keep},
               {"bits", row.bits},
               {"tokens", row.tokens},
               {"tokens_cut", row.tokens_cut},
               {"bytes", row.bytes},
               {"full_bytes", row.full_bytes},
               {"agreement", row.agreement},
               {"kl", row.kl}};
  if (!row.texts.empty()) {
    json["answer_tokens"] = row.answer_tokens;
    json["window"] = row.window;
    json["context_tokens_max"] = row.context_tokens_max;
    json["texts"] = row.texts;
  }
  if (!row.kind.empty()) json["kind"] = row.kind;
  if (!row.answer.empty()) {
    json["answer"] = row.answer;
    json["text"] = row.text;
  }
  if (!row.predicted.empty()) {
    json["predicted"] = row.predicted;
    json["seconds"] = row.seconds;
  }
  return json;
}

std::string line_of(const QualityRow& row) {
  return to_json(row).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<QualityRow>> read_quality_rows(const std::filesystem::path& file) {
  std::vector<QualityRow> rows;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return rows;
  SHALE_ASSIGN(const std::string text, read_file(file));
  std::size_t line = 1;
  for (std::size_t start = 0; start < text.size(); ++line) {
    const std::size_t end = text.find('\n', start);
    if (end == std::string::npos) break;
    try {
      rows.push_back(from_json(Json::parse(text.begin() + static_cast<std::ptrdiff_t>(start),
                                           text.begin() + static_cast<std::ptrdiff_t>(end))));
    } catch (const Json::exception& exception) {
      return fail(ErrorCode::kCorrupt, "{}:{}: no row of quality: {}", file.string(), line, exception.what());
    }
    start = end + 1;
  }
  return rows;
}

Status drop_cut_row(const std::filesystem::path& file) {
  if (!std::ofstream(file, std::ios::app)) return fail(ErrorCode::kIo, "cannot write to {}", file.string());
  SHALE_ASSIGN(const std::string text, read_file(file));
  const std::size_t whole = text.rfind('\n') + 1;
  if (whole == text.size()) return {};
  std::error_code error;
  std::filesystem::resize_file(file, whole, error);
  if (error) return fail(ErrorCode::kIo, "cannot write to {}: {}", file.string(), error.message());
  return {};
}

}  // namespace shale
