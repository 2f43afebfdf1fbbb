// What kivi4 and kivi2 share outside their kernels.
#pragma once

#include "codec/quantizer.h"

namespace shale {

class Kivi : public Quantizer {
 private:
  // Minima and scales of the keys' rows and of the values' rows, then the codes of both.
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const final {
    const auto code_bits = static_cast<std::size_t>(bits());
    const std::size_t key_rows = head_dim * sizeof(Half);
    const std::size_t value_rows = std::size_t{tokens} * head_dim / 32 * sizeof(Half);
    return {Plane{1, key_rows},
            Plane{1, key_rows},
            Plane{1, value_rows},
            Plane{1, value_rows},
            Plane{head_dim, (tokens * code_bits + 7) / 8},
            Plane{tokens, head_dim * code_bits / 8}};
  }
};

}  // namespace shale
