// What `redis-benchmark`, Redis' own measure of itself, gets out of a server, to compare the Redis tier with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "microbench/tiers_io.h"

namespace shale::bench {

bool redis_benchmark_installed();

// Writes values of `unit_bytes` under random ones of `blobs` keys and reads one of them, each `blobs` times, over eight
// connections to `server` ("host:6379", without password and TLS), and removes them. Rows of "redis-benchmark".
// kUnsupported where it does not get through.
Result<std::vector<TierIoRow>> measure_redis_benchmark(const std::string& server, std::size_t blobs,
                                                       std::uint64_t unit_bytes);

}  // namespace shale::bench
