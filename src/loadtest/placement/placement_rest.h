// Whether a server has put what it was asked to where that is to lie.
#pragma once

#include <string>

#include "loadtest/serve/serve_child.h"

namespace shale {

// What it still computes, writes or moves, by its metrics; empty: nothing. Measuring quality does not count.
std::string unrest_of(const Metrics& metrics);

}  // namespace shale
