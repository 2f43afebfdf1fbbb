// CRC-32C (Castagnoli): what storage protocols check bytes in transit by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shale {

// The checksum of what `crc` is of, followed by `bytes`; 0 is of nothing.
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace shale
