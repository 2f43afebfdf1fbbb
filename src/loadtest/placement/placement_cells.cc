#include "loadtest/placement/placement_cells.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <tuple>
#include <utility>

namespace shale {
namespace {

// Of the first row, as `append` writes it.
constexpr std::string_view kFirstWords = R"({"setting":)";

// Names and fields of what a row holds.
template <class T>
constexpr auto kFields = std::tuple();
template <>
constexpr auto kFields<PlacementAnswer> = std::tuple(
    std::pair("context", &PlacementAnswer::context), std::pair("question", &PlacementAnswer::question),
    std::pair("arrival", &PlacementAnswer::arrival_s), std::pair("prompt_tokens", &PlacementAnswer::prompt_tokens),
    std::pair("completion_tokens", &PlacementAnswer::completion_tokens), std::pair("ttft", &PlacementAnswer::ttft_s),
    std::pair("text", &PlacementAnswer::text), std::pair("expected_quality", &PlacementAnswer::expected_quality),
    std::pair("forms", &PlacementAnswer::forms));
template <>
constexpr auto kFields<PlacementCell> =
    std::tuple(std::pair("policy", &PlacementCell::policy), std::pair("rate", &PlacementCell::rate),
               std::pair("rate_to_prefill", &PlacementCell::rate_to_prefill), std::pair("seed", &PlacementCell::seed),
               std::pair("settle_seconds", &PlacementCell::settle_s), std::pair("written", &PlacementCell::written),
               std::pair("program", &PlacementCell::program), std::pair("itl_p50", &PlacementCell::itl_p50),
               std::pair("itl_p99", &PlacementCell::itl_p99), std::pair("itl_max", &PlacementCell::itl_max),
               std::pair("prompt_tokens", &PlacementCell::prompt_tokens),
               std::pair("computed_tokens", &PlacementCell::computed_tokens),
               std::pair("cached_tokens", &PlacementCell::cached_tokens),
               std::pair("background_seconds", &PlacementCell::background_seconds),
               std::pair("planning_seconds", &PlacementCell::planning_seconds),
               std::pair("profile_seconds", &PlacementCell::profile_seconds),
               std::pair("measured_beside_seconds", &PlacementCell::measured_beside_seconds),
               std::pair("run_seconds", &PlacementCell::run_seconds),
               std::pair("head_bytes", &PlacementCell::head_bytes), std::pair("answers", &PlacementCell::answers));

template <class T>
void write_fields(Json& json, const T& from) {
  std::apply([&](const auto&... field) { ((json[field.first] = from.*field.second), ...); }, kFields<T>);
}
template <class T>
void read_fields(const Json& json, T& to) {
  std::apply([&](const auto&... field) { (json.at(field.first).get_to(to.*field.second), ...); }, kFields<T>);
}

}  // namespace

// Found by the library.
static void to_json(Json& json, const PlacementAnswer& answer) { write_fields(json, answer); }
static void from_json(const Json& json, PlacementAnswer& answer) { read_fields(json, answer); }
static void to_json(Json& json, const PlacementCell& cell) { write_fields(json, cell); }
static void from_json(const Json& json, PlacementCell& cell) { read_fields(json, cell); }

PlacementCell cell_of(std::string policy, const ServeRow& row) {
  const ServeMetrics metrics = metrics_of(row);
  PlacementCell cell{.policy = std::move(policy),
                     .rate = row.rate,
                     .rate_to_prefill = row.rate_to_prefill,
                     .seed = row.seed,
                     .program = {},
                     .itl_p50 = metrics.itl_p50,
                     .itl_p99 = metrics.itl_p99,
                     .itl_max = metrics.itl_max,
                     .prompt_tokens = metrics.prompt_tokens,
                     .computed_tokens = metrics.computed_tokens,
                     .cached_tokens = metrics.cached_tokens,
                     .background_seconds = metrics.background_seconds,
                     .planning_seconds = metrics.planning_seconds,
                     .measured_beside_seconds = metrics.measured_beside_seconds,
                     .run_seconds = metrics.run_seconds,
                     .head_bytes = static_cast<std::uint64_t>(value_of(row.metrics, "shale_cache_head_bytes_total")),
                     .answers = {}};
  for (const auto& [work, seconds] : by_label(row.metrics, "shale_profile_seconds_total", "work")) {
    cell.profile_seconds += seconds;
  }
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    const ServedAnswer& from = row.answers[i];
    cell.answers.push_back({.context = row.load[i].context,
                            .question = row.load[i].question,
                            .arrival_s = row.load[i].at_s,
                            .prompt_tokens = from.prompt_tokens,
                            .completion_tokens = from.completion_tokens,
                            .ttft_s = from.error.empty() ? std::optional(from.pieces_s.front()) : std::nullopt,
                            .text = from.text,
                            .expected_quality = from.expected_quality,
                            .forms = from.forms});
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
    if (in.eof()) {  // without its end: cut short when it was stopped, whatever it holds
      if (number > 0 || line.starts_with(kFirstWords) || kFirstWords.starts_with(line)) break;
      return fail(ErrorCode::kCorrupt, "{} holds something else than cells: name another file", file.path_);
    }
    ++number;
    const Json row = Json::parse(line, nullptr, false);
    if (row.is_discarded()) {
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
  const bool was_there = in.is_open();
  in.close();
  std::error_code error;
  if (was_there) std::filesystem::resize_file(file.path_, whole, error);
  if (error) return fail(ErrorCode::kIo, "cannot write to {}: {}", file.path_, error.message());
  file.is_new_ = whole == 0;
  if (file.is_new_) SHALE_TRY(file.append({{"setting", setting}}));
  return file;
}

void PlacementFile::take(const Json& row) {
  if (row.contains("cell")) {
    cells_.push_back(row.at("cell"));
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

Result<bool> PlacementFile::has(const std::string& policy, double rate_to_prefill, std::uint64_t seed,
                                double settle_s) const {
  const auto found = std::ranges::find_if(cells_, [&](const PlacementCell& cell) {
    return cell.policy == policy && cell.seed == seed && std::abs(cell.rate_to_prefill - rate_to_prefill) < 1e-9;
  });
  if (found != cells_.end() && found->settle_s != settle_s) {
    return fail(ErrorCode::kInvalidArgument,
                "{} has {} after {:g} s of rest, not {:g}: give that --settle, or another --out", path_, policy,
                found->settle_s, settle_s);
  }
  return found != cells_.end();
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
  SHALE_TRY(append({{"cell", cell}}));
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
