#include "model/architectures/architecture_table.h"

namespace shale {

const Architecture kQwen2{.name = "qwen2", .rope_mode = GGML_ROPE_TYPE_NEOX, .query_biases = true};

}  // namespace shale
