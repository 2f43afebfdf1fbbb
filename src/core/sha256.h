// SHA-256 (FIPS 180-4), for keys that other programs make too and that nobody must be able to collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shale {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256& add(std::span<const std::byte> bytes);
  // Once, after everything was added.
  Sha256Digest finish();

 private:
  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_ = {};  // what does not fill a block yet
  std::uint64_t bytes_ = 0;
};

Sha256Digest sha256(std::span<const std::byte> bytes);

}  // namespace shale
