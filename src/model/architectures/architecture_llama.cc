#include "model/architectures/architecture_table.h"

namespace shale {

const Architecture kLlama{.name = "llama", .rope_mode = GGML_ROPE_TYPE_NORMAL};

}  // namespace shale
