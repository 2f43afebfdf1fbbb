// A planner as users write it, with what it is told of compression.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codec/method.h"
#include "core/error.h"

namespace shale {

struct PlannerChoice {
  std::string planner;  // by its name (make_planner)
  // The one form in which everything is stored: of `fixed` and `impress`.
  std::optional<Method> method = {};
  double keep = 1;
  double read_keep = 1;  // of what is kept, requests read the best tokens up to here: of `impress`
};

// "lfu", "lru", "prefill", "shale"; "fixed:METHOD[@KEEP]", as "fixed:kivi4" or "fixed:keydiff+int8@0.5"; and
// "impress[@KEEP]", which keeps all tokens, ranked by its scorer, and reads that share (0.5) of them.
// kInvalidArgument for all else.
Result<PlannerChoice> parse_planner(std::string_view text);

// What parse_planner takes, for messages.
std::string planner_forms();

}  // namespace shale
