#include "cli/option_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
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
CLI::Option* add_parsed(CLI::App& command, const std::string& name, Target& target, const std::string& description,
                        Result<Value> (*parse)(std::string_view)) {
  return command.add_option_function<std::string>(
      name,
      [&target, parse, name](const std::string& text) {
        Result<Value> value = parse(text);
        if (!value) throw CLI::ValidationError(name, value.error().message);
        target = std::move(*value);
      },
      description);
}

}  // namespace

void add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_flag("--json", options.json, "Print JSON for programs, one object a line")->group("Output");
  command.add_flag("--progress", options.progress, "Show progress on stderr even where it is not a terminal")
      ->group("Output");
}

CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& value, const std::string& description,
                      const std::string& shown) {
  return add_parsed<std::uint64_t>(command, name, value, description, parse_bytes)
      ->type_name("SIZE")
      ->default_str(shown);
}

CLI::Option* add_size(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& value,
                      const std::string& description, const std::string& shown) {
  return add_parsed<std::uint64_t>(command, name, value, description, parse_bytes)
      ->type_name("SIZE")
      ->default_str(shown);
}

CLI::Option* add_compaction(CLI::App& command, Compaction& value) {
  return add_parsed<Compaction>(command, "--compaction", value, "How the holes of dropped tokens are closed",
                                parse_compaction)
      ->type_name("none|repack|hole_fill")
      ->default_str(std::string(to_string(value)));
}

CLI::Option* add_budget_prefill(CLI::App& command, const std::string& name, BudgetPrefill& value) {
  return add_parsed<BudgetPrefill>(command, name, value,
                                   "Cut the prompt once it is computed whole, or after each chunk, which needs less "
                                   "memory",
                                   parse_budget_prefill)
      ->type_name("whole|chunked")
      ->default_str(std::string(to_string(value)));
}

CLI::Option* add_tiers(CLI::App& command, const std::string& name, std::vector<std::string>& urls,
                       const std::string& description) {
  return command
      .add_option_function<std::vector<std::string>>(
          name,
          [&urls, name](const std::vector<std::string>& lists) {
            std::vector<std::string_view> texts;
            for (const std::string& list : lists) std::ranges::copy(split_tier_urls(list), std::back_inserter(texts));
            if (const auto specs = parse_tiers(texts); !specs) throw CLI::ValidationError(name, specs.error().message);
            urls.assign(texts.begin(), texts.end());
          },
          description)
      ->allow_extra_args(false)
      ->type_name("URL,...");
}

CLI::Option* add_throttle(CLI::App& command, const std::string& name, std::optional<Throttle>& value,
                          const std::string& description) {
  return add_parsed<Throttle>(command, name, value, description, parse_throttle)->type_name("NAME|BANDWIDTH,LATENCY");
}

CLI::Option* add_method(CLI::App& command, const std::string& name, std::optional<Method>& value,
                        const std::string& description) {
  return add_parsed<Method>(command, name, value, description, parse_known_method)->type_name("METHOD");
}

Result<Method> parse_known_method(std::string_view text) {
  SHALE_ASSIGN(Method method, Method::parse(text));
  SHALE_TRY(method.check());
  return method;
}

CLI::Validator known_method() {
  return CLI::Validator(
      [](std::string& text) {
        const auto method = parse_known_method(text);
        return method ? std::string() : method.error().message;
      },
      "", "method");
}

CLI::Validator known_planner(std::string_view other) {
  return CLI::Validator(
      [other](std::string& text) {
        const auto choice = parse_planner(text);
        return choice || text == other ? std::string() : choice.error().message;
      },
      "", "planner");
}

CLI::Option* add_switch(CLI::App& command, const char* name, bool& value, const char* text) {
  return command.add_option(name, value, text)
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off")
      ->default_str(value ? "on" : "off");
}

CLI::Validator keep_on_grid() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const auto keep = parse_keep(text);
        return keep ? std::string() : keep.error().message;
      },
      "", "keep");
}

}  // namespace shale
