#include "codec/method.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/units.h"
#include "quantizers/quantizer.h"
#include "scoring/budgets/budget.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

bool is_name(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

// Cuts the first name off a list. The last one stays.
std::string_view take_name(std::string_view& list) {
  const std::size_t end = list.find('/');
  const std::string_view name = list.substr(0, end);
  if (end != list.npos) list.remove_prefix(end + 1);
  return name;
}

// A list of names without "full", none repeated at its end; empty for anything else.
std::string canonical_list(std::string_view list) {
  std::vector<std::string_view> names;
  for (std::size_t left = static_cast<std::size_t>(std::ranges::count(list, '/')) + 1; left > 0; --left) {
    names.push_back(take_name(list));
    if (!is_name(names.back()) || names.back() == "full") return {};
  }
  if (names.size() > kKeepGrid.size()) return {};
  while (names.size() > 1 && names.back() == names[names.size() - 2]) names.pop_back();
  return fmt::format("{}", fmt::join(names, "/"));
}

}  // namespace

std::string_view Method::quantizer_of(std::uint32_t tier) const {
  std::string_view rest = quantizer, name = take_name(rest);
  for (; tier > 0; --tier) name = take_name(rest);
  return name;
}

Status Method::check() const {
  if (!budget.empty()) SHALE_TRY(make_budget(budget));
  if (!scorer.empty()) SHALE_TRY(make_scorer(scorer));
  for (std::uint32_t s = 0; s < kKeepGrid.size(); ++s) SHALE_TRY(make_quantizer(quantizer_of(s)));
  return {};
}

std::string Method::ranking() const { return budget.empty() ? scorer : budget + ":" + scorer; }

std::string Method::text() const {
  if (is_full()) return "full";
  if (scorer.empty()) return quantizer;
  return quantizer == "none" ? ranking() : ranking() + "+" + quantizer;
}

Result<Method> Method::parse(std::string_view text) {
  if (text == "full") return full();
  const std::size_t plus = text.find('+'), colon = text.substr(0, plus).find(':');
  const std::string_view budget = colon == text.npos ? "uniform" : text.substr(0, colon);
  const std::string_view first = text.substr(0, plus).substr(colon == text.npos ? 0 : colon + 1);
  std::string second = canonical_list(plus == text.npos ? "none" : text.substr(plus + 1));
  if (!is_name(budget) || !is_name(first) || first == "full" || second.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is not a method: [budget:]scorer[+quantizer[/quantizer]...], quantizer or full, such as keydiff, "
                "kivi4, snapkv+int8, snapkv+int8/kivi2, adakv:snapkv",
                text);
  }
  const auto quantizers = quantizer_names();
  const bool only_quantizer = plus == text.npos && colon == text.npos;
  if (only_quantizer && std::find(quantizers.begin(), quantizers.end(), first) != quantizers.end()) {
    return Method{"", std::string(first)};
  }
  return Method{std::string(first), std::move(second), budget == "uniform" ? "" : std::string(budget)};
}

Result<double> parse_keep(std::string_view text) {
  const auto keep = parse_number(text);
  if (keep && std::ranges::find(kKeepGrid, *keep) != kKeepGrid.end()) return *keep;
  return fail(ErrorCode::kInvalidArgument, "'{}' is not what can be kept: one of {}", text, fmt::join(kKeepGrid, ", "));
}

}  // namespace shale
