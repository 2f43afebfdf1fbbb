// A method is written `scorer[+quantizer]`, `quantizer` or `full`: keydiff, kivi4, snapkv+int8, full.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

struct Method {
  std::string scorer;     // empty: no ranking, tokens are kept in order and all of them
  std::string quantizer;  // "none": as computed

  bool operator==(const Method&) const = default;
  auto operator<=>(const Method&) const = default;
  bool is_full() const { return scorer.empty() && quantizer == "none"; }
  std::string text() const;
  // Only the form is checked here; make_scorer and make_quantizer check the names.
  static Result<Method> parse(std::string_view text);
  static Method full() { return {"", "none"}; }
};

// The keeps at which stored objects can be cut.
inline constexpr std::array<double, 5> kKeepGrid = {0.1, 0.25, 0.5, 0.75, 1.0};

}  // namespace shale
