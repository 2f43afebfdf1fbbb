// The architectures that exist, one file each.
#pragma once

#include "model/architectures/architecture.h"

namespace shale {

extern const Architecture kGemma3;
extern const Architecture kLlama;
extern const Architecture kQwen2;

}  // namespace shale
