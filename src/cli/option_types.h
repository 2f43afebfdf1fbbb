// Options with units, checked while the command line is read, so that a bad value is an error before any work starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/option_types.h"
#include "codec/method.h"
#include "engine/kv_budget.h"
#include "report/output.h"
#include "tiers/tiers.h"

namespace shale {

// --json and --progress.
void add_output_options(Command command, OutputOptions& options);

// "256MiB", "2GB". `shown` is what the help gives as the default.
Option add_size(Command command, const std::string& name, std::uint64_t& value, const std::string& description,
                const std::string& shown);
Option add_size(Command command, const std::string& name, std::optional<std::uint64_t>& value,
                const std::string& description, const std::string& shown);

// URLs of tiers, fast to slow, in one comma-separated text or several.
Option add_tiers(Command command, const std::string& name, std::vector<std::string>& urls,
                 const std::string& description);

// A preset's name, or BANDWIDTH,LATENCY: "hdd", "200MB/s,8ms".
Option add_throttle(Command command, const std::string& name, std::optional<Throttle>& value,
                    const std::string& description);

// How the holes of dropped tokens are closed.
Option add_compaction(Command command, Compaction& value);
// When a KV budget cuts a prompt.
Option add_budget_prefill(Command command, const std::string& name, BudgetPrefill& value);

// A compression method whose scorer and quantizer exist: "snapkv+int8".
Option add_method(Command command, const std::string& name, std::optional<Method>& value,
                  const std::string& description);
// kInvalidArgument lists the scorers or quantizers that exist.
Result<Method> parse_known_method(std::string_view text);

// "on" or "off".
Option add_switch(Command command, const char* name, bool& value, const char* text);
// Checks of texts, for Option::check: a keep at which what is stored can be cut (kKeepGrid),
Status check_keep(const std::string& text);
// a method as of parse_known_method,
Status check_method(const std::string& text);
// a planner as of parse_planner, or `other`.
std::function<Status(const std::string&)> known_planner(std::string_view other = {});

}  // namespace shale
