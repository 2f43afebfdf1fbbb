#pragma once

#include "core/executor.h"
#include "core/hash.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/model.h"

namespace shale {

// Names a model for stored KV: every byte of the file (weights, tokenizer, RoPE settings), the page's element type and
// size, and whether weights run in the file's types, in fast ones or in F32, which changes values in the last bits.
// Which fast types a machine measured as best is left out: they differ from each other by less than rounding in the
// file's own type does, and two runs on one machine must agree. Hashes in parallel, about 10 GB/s a core.
Hash128 model_fingerprint(const GgufFile& file, const ModelOptions& options, Executor& executor);

}  // namespace shale
