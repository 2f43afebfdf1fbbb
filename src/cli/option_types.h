// Options with units, checked while the command line is read, so that a bad value is an error before any work starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"
#include "cli/option_types.h"
#include "codec/method.h"
#include "engine/kv_budget.h"
#include "report/output.h"
#include "tiers/tiers.h"

namespace shale {

// --json and --progress.
void add_output_options(CLI::App& command, OutputOptions& options);

// "256MiB", "2GB". `shown` is what the help gives as the default.
CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& value, const std::string& description,
                      const std::string& shown);
CLI::Option* add_size(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& value,
                      const std::string& description, const std::string& shown);

// URLs of tiers, fast to slow, in one comma-separated text or several.
CLI::Option* add_tiers(CLI::App& command, const std::string& name, std::vector<std::string>& urls,
                       const std::string& description);

// A preset's name, or BANDWIDTH,LATENCY: "hdd", "200MB/s,8ms".
CLI::Option* add_throttle(CLI::App& command, const std::string& name, std::optional<Throttle>& value,
                          const std::string& description);

// How the holes of dropped tokens are closed.
CLI::Option* add_compaction(CLI::App& command, Compaction& value);
// When a KV budget cuts a prompt.
CLI::Option* add_budget_prefill(CLI::App& command, const std::string& name, BudgetPrefill& value);

// A compression method whose scorer and quantizer exist: "snapkv+int8".
CLI::Option* add_method(CLI::App& command, const std::string& name, std::optional<Method>& value,
                        const std::string& description);
// kInvalidArgument lists the scorers or quantizers that exist.
Result<Method> parse_known_method(std::string_view text);

// "on" or "off".
CLI::Option* add_switch(CLI::App& command, const char* name, bool& value, const char* text);
// A keep at which what is stored can be cut (kKeepGrid).
CLI::Validator keep_on_grid();
// As parse_known_method, for options that take several.
CLI::Validator known_method();
// As parse_planner, and `other`.
CLI::Validator known_planner(std::string_view other = {});

}  // namespace shale
