#pragma once

#include <cstdint>
#include <string_view>

#include "core/executor.h"
#include "core/hash.h"
#include "model/weights/gguf_file.h"
#include "paging/page_shape.h"

namespace shale {

// Every byte of the file: weights, tokenizer, RoPE settings. Hashes in parallel, about 10 GB/s a core.
Hash128 content_hash(const GgufFile& file, Executor& executor);

// Names a model for stored KV: the file's content, the page's element type and size, and the types that weights run in
// for prefill and decode (RunningWeights::arithmetic), since KV of other types differs by their rounding.
Hash128 model_fingerprint(const Hash128& content, PageElement element, std::uint32_t block_size,
                          std::string_view arithmetic);

}  // namespace shale
