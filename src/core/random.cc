#include "core/random.h"

#include <random>

namespace shale {

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace shale
