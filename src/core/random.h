// Numbers that nobody can know before.
#pragma once

#include <cstdint>

namespace shale {

// A number from the system's source: different in every call of every process. Thread-safe. For names, not for
// sampling.
std::uint64_t random_number();

}  // namespace shale
