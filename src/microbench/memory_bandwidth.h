// What the memory itself delivers, for kernels to be measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace shale::bench {

// Reads all of it, in whole vectors; a value of all the words, so that the read cannot be left out.
std::uint64_t read_bytes(std::span<const std::byte> bytes);

double seconds_of(const std::function<void()>& pass);

}  // namespace shale::bench
