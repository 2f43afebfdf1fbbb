#include "cache/planner_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "placement/placement.h"

namespace shale {
namespace {

constexpr std::string_view kFixed = "fixed", kImpress = "impress";
constexpr double kImpressKeep = 0.5;

}  // namespace

std::string planner_forms() {
  std::vector<std::string> forms;
  for (const std::string_view name : planner_names()) {
    forms.emplace_back(name);
    if (name == kFixed) forms.back() += ":METHOD[@KEEP]";
    if (name == kImpress) forms.back() += "[@KEEP]";
  }
  return fmt::format("{}", fmt::join(forms, ", "));
}

Result<PlannerChoice> parse_planner(std::string_view text) {
  const std::size_t at = std::min(text.find('@'), text.size());
  const std::size_t colon = std::min(text.substr(0, at).find(':'), at);
  PlannerChoice choice{.planner = std::string(text.substr(0, colon))};
  const std::vector<std::string_view> names = planner_names();
  const bool known = std::ranges::find(names, choice.planner) != names.end();
  const bool fixed = choice.planner == kFixed, impress = choice.planner == kImpress;
  if (!known || (colon < at && !fixed) || (at < text.size() && !fixed && !impress)) {
    return fail(ErrorCode::kInvalidArgument, "there is no planner '{}'; there are {}", text, planner_forms());
  }
  if (!fixed && !impress) return choice;
  if (fixed && colon == at) {
    return fail(ErrorCode::kInvalidArgument, "planner fixed needs a method, as in fixed:kivi4 or fixed:keydiff@0.5");
  }
  SHALE_ASSIGN(choice.method, Method::parse(fixed ? text.substr(colon + 1, at - colon - 1) : kImpress));
  SHALE_TRY(choice.method->check());
  if (impress) choice.read_keep = kImpressKeep;
  if (at < text.size()) {
    SHALE_ASSIGN((impress ? choice.read_keep : choice.keep), parse_keep(text.substr(at + 1)));
  }
  if (choice.method->scorer.empty() && choice.keep < 1) {
    return fail(ErrorCode::kInvalidArgument, "method {} keeps every token: name a scorer with it, as in knorm+{}",
                choice.method->text(), choice.method->text());
  }
  return choice;
}

}  // namespace shale
