// How near decode attention comes to the memory's read bandwidth, and what a fork takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/executor.h"
#include "kernel_row.h"

namespace shale::bench {

// A plain read of a page pool, a read of the same pages in the order in which attention comes to them and of their keys
// alone where they are fp16 (what `knorm` reads), then decode attention over them, a step of all layers at a time:
// sequences of `depth` tokens through shuffled page tables, in the head shapes of SmolLM2-135M and Qwen2.5-0.5B; with
// one thread and, where the executor has more, with all of them. `share_of_read_bandwidth` is against the plain read
// with the same threads of the same pool, measured in turns with it. As many sequences as fill `pool_bytes`, so that no
// cache holds them; takes a few seconds. Then a fork of 128,000 tokens of 32 layers and 8 KV heads: its bytes are the
// block table and the blocks' counts, read and written. Only where the name of the row of attention, or of the fork,
// contains `only`.
std::vector<KernelRow> paging_rows(Executor& executor, std::string_view only = {}, std::uint32_t depth = 8192,
                                   std::size_t pool_bytes = std::size_t{512} << 20);

}  // namespace shale::bench
