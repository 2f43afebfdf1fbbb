// Writing past the caches: decoded pages are far more than caches hold, and a store that goes through them first reads
// what it overwrites.
#pragma once

#include <cstddef>

#include "core/half.h"

namespace shale {

// Copies `rows` rows of `elements` (a multiple of 8), `from_stride` and `to_stride` elements apart; rows of `to` begin
// at multiples of 16 bytes. Other threads see them after flush_stream().
void stream_rows(const Half* from, std::size_t from_stride, Half* to, std::size_t to_stride, std::size_t rows,
                 std::size_t elements);
void flush_stream();

}  // namespace shale
