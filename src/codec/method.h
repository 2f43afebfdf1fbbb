// A method is written `[budget:]scorer[+quantizer[/quantizer]…]`, `quantizer` or `full`: keydiff, kivi4, snapkv+int8,
// snapkv+int8/kivi2, adakv:snapkv+int8, full.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

struct Method {
  std::string scorer;  // empty: no ranking, tokens are kept in order and all of them
  // "none": as computed. A method with a scorer may name one a tier, the most important first, the last for all others:
  // "int8/int8/kivi2" has the best quarter of the tokens (kKeepGrid) at 8 bits and the rest at 2.
  std::string quantizer;
  std::string budget = {};  // empty: uniform, the same number of tokens in every layer and head

  bool operator==(const Method&) const = default;
  auto operator<=>(const Method&) const = default;
  bool is_full() const { return scorer.empty() && quantizer == "none"; }
  std::string text() const;
  // What orders its tokens, "scorer" or "budget:scorer"; empty without a scorer.
  std::string ranking() const;
  std::string_view quantizer_of(std::uint32_t tier) const;
  // Whether objects can be stored by it. kInvalidArgument for a name that is no budget's, scorer's or quantizer's, with
  // the known ones.
  Status check() const;
  // Only the form is checked here.
  static Result<Method> parse(std::string_view text);
  static Method full() { return {"", "none"}; }
};

// The bits of a tier: all of them in one plane, or, where the quantizer's nest, those that mean something alone in one
// and the finer ones in another.
inline constexpr std::uint32_t kBasePlane = 0, kRefinementPlane = 1;

// The keeps at which what is stored can be cut.
inline constexpr std::array<double, 5> kKeepGrid = {0.1, 0.25, 0.5, 0.75, 1.0};
// One of them; kInvalidArgument names them.
Result<double> parse_keep(std::string_view text);

}  // namespace shale
