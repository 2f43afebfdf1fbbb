#include "cli/option_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "cache/planner_choice.h"
#include "core/units.h"
#include "quantizers/quantizer.h"
#include "scoring/scorer.h"
#include "tier/tier_url.h"

namespace shale {
namespace {

// An option whose text becomes a value by `parse`; what `parse` finds wrong is the user's error message.
template <class Value, class Target>
Option add_parsed(Command command, const std::string& name, Target& target, const std::string& description,
                  Result<Value> (*parse)(std::string_view)) {
  return command.add_parsed(
      name,
      [&target, parse](const std::string& text) -> Status {
        SHALE_ASSIGN(target, parse(text));
        return {};
      },
      description);
}

}  // namespace

void add_output_options(Command command, OutputOptions& options) {
  command.add_flag("--json", options.json, "Print JSON for programs, one object a line").group("Output");
  command.add_flag("--progress", options.progress, "Show progress on stderr even where it is not a terminal")
      .group("Output");
}

Option add_size(Command command, const std::string& name, std::uint64_t& value, const std::string& description,
                const std::string& shown) {
  return add_parsed<std::uint64_t>(command, name, value, description, parse_bytes).type_name("SIZE").default_str(shown);
}

Option add_size(Command command, const std::string& name, std::optional<std::uint64_t>& value,
                const std::string& description, const std::string& shown) {
  return add_parsed<std::uint64_t>(command, name, value, description, parse_bytes).type_name("SIZE").default_str(shown);
}

Option add_compaction(Command command, Compaction& value) {
  return add_parsed<Compaction>(command, "--compaction", value, "How the holes of dropped tokens are closed",
                                parse_compaction)
      .type_name("none|repack|hole_fill")
      .default_str(std::string(to_string(value)));
}

Option add_budget_prefill(Command command, const std::string& name, BudgetPrefill& value) {
  return add_parsed<BudgetPrefill>(command, name, value,
                                   "Cut the prompt once it is computed whole, or after each chunk, which needs less "
                                   "memory",
                                   parse_budget_prefill)
      .type_name("whole|chunked")
      .default_str(std::string(to_string(value)));
}

Option add_tiers(Command command, const std::string& name, std::vector<std::string>& urls,
                 const std::string& description) {
  return command
      .add_parsed_list(
          name,
          [&urls](const std::vector<std::string>& lists) -> Status {
            std::vector<std::string_view> texts;
            for (const std::string& list : lists) std::ranges::copy(split_tier_urls(list), std::back_inserter(texts));
            SHALE_TRY(parse_tiers(texts));
            urls.assign(texts.begin(), texts.end());
            return {};
          },
          description)
      .allow_extra_args(false)
      .type_name("URL,...");
}

Option add_throttle(Command command, const std::string& name, std::optional<Throttle>& value,
                    const std::string& description) {
  return add_parsed<Throttle>(command, name, value, description, parse_throttle).type_name("NAME|BANDWIDTH,LATENCY");
}

Option add_method(Command command, const std::string& name, std::optional<Method>& value,
                  const std::string& description) {
  return add_parsed<Method>(command, name, value, description, parse_known_method).type_name("METHOD");
}

Result<Method> parse_known_method(std::string_view text) {
  SHALE_ASSIGN(Method method, Method::parse(text));
  SHALE_TRY(method.check());
  return method;
}

Status check_method(const std::string& text) {
  SHALE_TRY(parse_known_method(text));
  return {};
}

std::function<Status(const std::string&)> known_planner(std::string_view other) {
  return [other](const std::string& text) -> Status {
    if (text != other) SHALE_TRY(parse_planner(text));
    return {};
  };
}

Option add_switch(Command command, const char* name, bool& value, const char* text) {
  return command.add_option(name, value, text)
      .one_of({"on", "off"})
      .type_name("on|off")
      .default_str(value ? "on" : "off");
}

Status check_keep(const std::string& text) {
  SHALE_TRY(parse_keep(text));
  return {};
}

}  // namespace shale
