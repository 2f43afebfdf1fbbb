// How many rows a product must have for each to come out the same whatever the others are.
//
// A matrix library has a kernel for one row, another for several, and others for what is left over, which sum in
// different orders. Rows in whole units of so many go through the same one.
#pragma once

#include <cstdint>

#include "model/compute_threads.h"
#include "model/weights/weights.h"

namespace shale {

inline constexpr std::uint32_t kRowUnitMax = 16;

// Found by trying each kind of matrix of the set with several counts of rows; 0 where no unit up to kRowUnitMax will
// do.
std::uint32_t find_row_unit(const MatrixSet& set, ComputeThreads& threads);

}  // namespace shale
