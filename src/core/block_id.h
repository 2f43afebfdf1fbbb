// The blocks of a request trace.
#pragma once

#include <cstdint>

namespace shale {

using BlockId = std::uint32_t;  // 0, 1, 2 … in order of first appearance
inline constexpr BlockId kNoBlock = ~BlockId{0};

}  // namespace shale
