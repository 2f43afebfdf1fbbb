// What parallel `curl` processes make of the objects of a bucket, to compare the S3 tier with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "microbench/tiers_io.h"
#include "tiers/s3/s3_tier.h"

namespace shale::bench {

bool curl_installed();

// Reads the blobs' objects, and writes and removes as many of the same size, by eight processes that each keep their
// connection and have every eighth of them. Rows of "curl"; of one object alone it knows nothing. kIo where curl fails.
Result<std::vector<TierIoRow>> measure_curl(const S3Tier& tier, const std::vector<BlobId>& blobs,
                                            std::uint64_t unit_bytes, const std::filesystem::path& scratch,
                                            const Clock& clock);

}  // namespace shale::bench
