// Short texts of every kind of context that ship with Shale, with questions that they answer: what a model's quality
// under compression is expected by before any context of its own was measured (AdaptCache's ten cached prefixes, arXiv
// 2509.00105). Written for this; part of no data set.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "metadata/context_kind.h"

namespace shale {

struct PriorText {
  std::string_view name;
  ContextKind kind;
  std::string_view text;
  std::array<std::string_view, 2> questions;
};

// Two of each kind, kind after kind in turn, so that any first few of them are of several kinds. 250 to 600 tokens
// each.
std::span<const PriorText> prior_texts();

}  // namespace shale
