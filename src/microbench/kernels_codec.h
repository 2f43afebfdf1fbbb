// How near scorers and quantizers come to the memory's bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/executor.h"
#include "kernel_row.h"

namespace shale::bench {

// Rows over the shuffled pages of one context of SmolLM2-135M's shape that fills `pool_bytes`, so that no cache holds
// it, with one thread and, where the executor has more, with all of them:
//
//   every scorer that reads keys, as a share of a plain read of the pool; bytes are the keys (and values) that its
//   passes must read, keydiff and snapkv twice; every quantizer's extents, from the pool's blocks to bytes at rest and
//   back, checksums and all, and exact ones likewise, as a share of a plain copy of the pool; bytes are those read and
//   those written, of the copy too.
//
// Each kernel is measured in turns with what it is compared with. Takes about a minute; only what has `only` in its
// name is measured.
std::vector<KernelRow> codec_rows(Executor& executor, std::string_view only = {},
                                  std::size_t pool_bytes = std::size_t{192} << 20);

}  // namespace shale::bench
