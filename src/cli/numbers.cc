#include "cli/numbers.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace shale {
namespace {

// Numbers by what the help calls their values.
constexpr auto kNumbers =
    std::to_array<std::string_view>({"FLOAT", "INT", "K", "N", "N,...", "N[,N]", "P", "S", "S,...", "SECONDS", "SHARE",
                                     "SHARE,...", "T", "TIMES", "TOKENS/S", "UINT", "W,W,W", "WEIGHT", "X"});
constexpr double kTooLarge = 0x1p64;

void check(const CLI::Option& option, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return;  // what it is, its own type says
  if (std::isinf(number) && option.check_lname("half-life")) return;
  if (number >= 0 && number < kTooLarge && !std::signbit(number)) return;
  throw CLI::ValidationError(option.get_name(), fmt::format("'{}' is not a number from 0 on that is in range", text));
}

}  // namespace

void check_numbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();  // with what its validators say of it, after a colon
    if (option->empty() || std::ranges::find(kNumbers, type.substr(0, type.find(':'))) == kNumbers.end()) continue;
    for (const std::string& text : option->results()) check(*option, text);
  }
  for (const CLI::App* command : app.get_subcommands()) check_numbers(*command);
}

}  // namespace shale
