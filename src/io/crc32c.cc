#include "io/crc32c.h"

#include <array>
#include <cstring>

namespace shale {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t by_table(std::uint32_t crc, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return crc;
}

#ifdef __x86_64__
// Eight bytes every three cycles.
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint64_t wide = crc;
  for (; bytes.size() >= sizeof wide; bytes = bytes.subspan(sizeof wide)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return by_table(static_cast<std::uint32_t>(wide), bytes);
}
#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(~crc, bytes);
#endif
  return ~by_table(~crc, bytes);
}

}  // namespace shale
