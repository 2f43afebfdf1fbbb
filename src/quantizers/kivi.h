// What the quantizers with a minimum and a scale a row share outside their kernels: kivi4, kivi2, layered, layered2.
#pragma once

#include "quantizers/quantizer.h"

namespace shale {

class Kivi : public Quantizer {
 protected:
  // Rows of codes of the keys and of the values.
  static Plane key_codes(std::uint32_t tokens, std::uint32_t head_dim, std::size_t code_bits) {
    return {head_dim, (tokens * code_bits + 7) / 8};
  }
  static Plane value_codes(std::uint32_t tokens, std::uint32_t head_dim, std::size_t code_bits) {
    return {tokens, head_dim * code_bits / 8};
  }

 private:
  virtual std::size_t base_code_bits() const { return static_cast<std::size_t>(bits()); }

  // Minima and scales of the keys' rows and of the values' rows, then the codes of both.
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const final {
    const std::size_t key_rows = head_dim * sizeof(Half);
    const std::size_t value_rows = std::size_t{tokens} * head_dim / 32 * sizeof(Half);
    return {Plane{1, key_rows},
            Plane{1, key_rows},
            Plane{1, value_rows},
            Plane{1, value_rows},
            key_codes(tokens, head_dim, base_code_bits()),
            value_codes(tokens, head_dim, base_code_bits())};
  }
};

}  // namespace shale
