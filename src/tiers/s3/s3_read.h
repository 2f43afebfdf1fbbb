// One blob, or a range of one, read by parallel ranged requests that write into its buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/buffer_pool.h"
#include "core/error.h"
#include "tier/tier.h"
#include "tiers/s3/s3_client.h"

namespace shale {

// Asks for the object `key` that holds `id` as docs/formats/s3.md has it, and calls `done` once, on the client's
// thread: with the blob, or with a buffer that begins at the range's first byte. Errors are TierRead::take()'s, and
// S3Call's. The client must outlive it.
void read_s3_blob(S3Client& client, const std::shared_ptr<BufferPool>& buffers, std::string key, const BlobId& id,
                  const BlobRange& range, std::function<void(Result<BlobBytes>)> done);

}  // namespace shale
