// What a connection of this machine to itself moves, with nothing behind it: the bound of every tier behind a network.
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "microbench/tiers_io.h"

namespace shale::bench {

// Sends and receives `blobs` blobs of `unit_bytes`, each into memory of its own of `in_flight_bytes` that is used again
// and again, over one connection to a thread that takes them into, and gives them from, one buffer. Rows of "tcp". kIo.
Result<std::vector<TierIoRow>> measure_tcp_copy(std::size_t blobs, std::uint64_t unit_bytes,
                                                std::uint64_t in_flight_bytes, const Clock& clock);

}  // namespace shale::bench
