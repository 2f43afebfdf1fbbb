#include "cli/placement_cells.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

namespace shale {
namespace {

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
std::optional<double> optional_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json to_json(const PlacementAnswer& answer) {
  Json forms = Json::array();
  for (const ServedForm& form : answer.forms) {
    forms.push_back({{"method", form.method}, {"keep", form.keep}, {"tokens", form.tokens}, {"from", form.from}});
  }
  return {{"context", answer.context},
          {"question", answer.question},
          {"ttft", optional_json(answer.ttft_s)},
          {"text", answer.text},
          {"expected_quality", optional_json(answer.expected_quality)},
          {"forms", std::move(forms)}};
}

PlacementAnswer parse_answer(const Json& json) {
  PlacementAnswer answer{.context = json.at("context"),
                         .question = json.at("question"),
                         .ttft_s = optional_of(json.at("ttft")),
                         .text = json.at("text"),
                         .expected_quality = optional_of(json.at("expected_quality")),
                         .forms = {}};
  for (const Json& form : json.at("forms")) {
    answer.forms.push_back({form.at("method"), form.at("keep"), form.at("tokens"), form.at("from")});
  }
  return answer;
}

Json to_json(const PlacementCell& cell) {
  Json answers = Json::array();
  for (const PlacementAnswer& answer : cell.answers) answers.push_back(to_json(answer));
  return {{"cell", cell.policy},
          {"rate", cell.rate},
          {"rate_to_prefill", cell.rate_to_prefill},
          {"seed", cell.seed},
          {"itl_p50", cell.itl_p50},
          {"itl_p99", cell.itl_p99},
          {"itl_max", cell.itl_max},
          {"prompt_tokens", cell.prompt_tokens},
          {"computed_tokens", cell.computed_tokens},
          {"cached_tokens", cell.cached_tokens},
          {"background_seconds", cell.background_seconds},
          {"planning_seconds", cell.planning_seconds},
          {"profile_seconds", cell.profile_seconds},
          {"answers", std::move(answers)}};
}

PlacementCell parse_cell(const Json& json) {
  PlacementCell cell{.policy = json.at("cell"),
                     .rate = json.at("rate"),
                     .rate_to_prefill = json.at("rate_to_prefill"),
                     .seed = json.at("seed"),
                     .itl_p50 = json.at("itl_p50"),
                     .itl_p99 = json.at("itl_p99"),
                     .itl_max = json.at("itl_max"),
                     .prompt_tokens = json.at("prompt_tokens"),
                     .computed_tokens = json.at("computed_tokens"),
                     .cached_tokens = json.at("cached_tokens"),
                     .background_seconds = json.at("background_seconds"),
                     .planning_seconds = json.at("planning_seconds"),
                     .profile_seconds = json.at("profile_seconds"),
                     .answers = {}};
  for (const Json& answer : json.at("answers")) cell.answers.push_back(parse_answer(answer));
  return cell;
}

}  // namespace

PlacementCell cell_of(std::string policy, const ServeRow& row) {
  const ServeFigures figures = figures_of(row);
  const auto grew = [&](const char* name) {
    const auto found = row.metrics.find(name);
    return found == row.metrics.end() ? 0 : found->second;
  };
  PlacementCell cell{.policy = std::move(policy),
                     .rate = row.rate,
                     .rate_to_prefill = row.rate_to_prefill,
                     .seed = row.seed,
                     .itl_p50 = figures.itl_p50,
                     .itl_p99 = figures.itl_p99,
                     .itl_max = figures.itl_max,
                     .prompt_tokens = figures.prompt_tokens,
                     .computed_tokens = figures.computed_tokens,
                     .cached_tokens = figures.cached_tokens,
                     .background_seconds = grew("shale_cache_background_seconds_total"),
                     .planning_seconds = grew("shale_cache_planning_seconds_total"),
                     .answers = {}};
  for (const auto& [work, seconds] : by_label(row.metrics, "shale_profile_seconds_total", "work")) {
    cell.profile_seconds += seconds;
  }
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    const ServedAnswer& from = row.answers[i];
    PlacementAnswer answer{.context = row.load[i].context,
                           .question = row.load[i].question,
                           .ttft_s = std::nullopt,
                           .text = from.text,
                           .expected_quality = from.expected_quality,
                           .forms = from.forms};
    if (from.error.empty()) answer.ttft_s = from.pieces_s.front();
    cell.answers.push_back(std::move(answer));
  }
  return cell;
}

Result<PlacementFile> PlacementFile::open(std::string path, std::string setting) {
  PlacementFile file;
  file.path_ = std::move(path);
  std::ifstream in(file.path_);
  std::string line;
  std::size_t number = 0;
  std::uintmax_t whole = 0;  // bytes of whole rows
  while (std::getline(in, line)) {
    ++number;
    const Json row = Json::parse(line, nullptr, false);
    if (row.is_discarded()) {
      if (in.peek() == std::ifstream::traits_type::eof()) break;  // cut short when it was stopped
      return fail(ErrorCode::kCorrupt, "{}:{}: no JSON object", file.path_, number);
    }
    try {
      if (number == 1 && row.at("setting") != setting) {
        return fail(ErrorCode::kInvalidArgument, "{} was measured under other options ({}): name another file",
                    file.path_, row.at("setting").get<std::string>());
      }
      file.take(row);
    } catch (const Json::exception& error) {
      return fail(ErrorCode::kCorrupt, "{}:{}: {}", file.path_, number, error.what());
    }
    whole += line.size() + 1;
  }
  in.close();
  if (number == 0) {
    SHALE_TRY(file.append({{"setting", setting}}));
    return file;
  }
  std::error_code error;
  std::filesystem::resize_file(file.path_, std::min(whole, std::filesystem::file_size(file.path_, error)), error);
  if (error) return fail(ErrorCode::kIo, "cannot write to {}: {}", file.path_, error.message());
  return file;
}

void PlacementFile::take(const Json& row) {
  if (row.contains("cell")) {
    cells_.push_back(parse_cell(row));
  } else if (row.contains("agreement")) {
    agreement_[{row.at("context"), row.at("question"), row.at("method"), row.at("keep")}] = row.at("agreement");
  } else if (row.contains("reference")) {
    references_[{row.at("context"), row.at("question")}] = row.at("reference");
  } else if (row.contains("value")) {
    values_[row.at("value")] = row.at("is");
  }
}

std::optional<double> PlacementFile::value(const std::string& name) const {
  const auto known = values_.find(name);
  return known == values_.end() ? std::nullopt : std::optional(known->second);
}

bool PlacementFile::has(const std::string& policy, double rate_to_prefill, std::uint64_t seed) const {
  return std::ranges::any_of(cells_, [&](const PlacementCell& cell) {
    return cell.policy == policy && cell.seed == seed && std::abs(cell.rate_to_prefill - rate_to_prefill) < 1e-9;
  });
}

Status PlacementFile::append(const Json& row) const {
  std::ofstream out(path_, std::ios::app);
  out << row.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!out.flush()) return fail(ErrorCode::kIo, "cannot write to {}", path_);
  return {};
}

Status PlacementFile::add(const std::string& name, double value) {
  SHALE_TRY(append({{"value", name}, {"is", value}}));
  values_[name] = value;
  return {};
}

Status PlacementFile::add(PlacementCell cell) {
  SHALE_TRY(append(to_json(cell)));
  cells_.push_back(std::move(cell));
  return {};
}

Status PlacementFile::add(const FormKey& key, double agreement) {
  SHALE_TRY(append({{"context", key.context},
                    {"question", key.question},
                    {"method", key.method},
                    {"keep", key.keep},
                    {"agreement", agreement}}));
  agreement_[key] = agreement;
  return {};
}

Status PlacementFile::add_reference(std::size_t context, std::size_t question, std::string answer) {
  SHALE_TRY(append({{"context", context}, {"question", question}, {"reference", answer}}));
  references_[{context, question}] = std::move(answer);
  return {};
}

}  // namespace shale
