// The two parts of CodeBLEU (Ren et al. 2020, arXiv 2009.10297) that read code as code.
#pragma once

#include <optional>

#include "profile/metrics/code_tree.h"

namespace shale {

// The share of the reference's subtrees that the answer has, each as often as both have it (section 3.2).
// Names and values do not count, nor what has no children.
double syntax_match(const CodeTree& answer, const CodeTree& reference);

// The same of the edges of data flow (section 3.3): where the value of each variable comes from. Variables are numbered
// as they appear. Nothing where the reference has no edge.
std::optional<double> data_flow_match(const CodeTree& answer, const CodeTree& reference);

}  // namespace shale
