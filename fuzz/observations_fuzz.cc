// Stored observations: any bytes are an error, or observations that hold together and are written as they were read.
#include <algorithm>

#include "cache/stored_observations.h"
#include "core/hash.h"
#include "input.h"

namespace {

using namespace shale;

constexpr std::size_t kReserved = 36, kChecksum = 40, kHeader = 56;  // docs/formats/observations.md

// Gives observations the checksum that they would have, so that damage is seen by the checks behind it.
void seal(std::span<std::byte> bytes) {
  if (bytes.size() < kHeader) return;
  std::ranges::fill(bytes.subspan(kReserved, kHeader - kReserved), std::byte{0});
  const Hash128 sum = Hasher().add(bytes.first(kHeader)).add(bytes.subspan(kHeader)).finish();
  std::memcpy(&bytes[kChecksum], &sum.high, 8);
  std::memcpy(&bytes[kChecksum + 8], &sum.low, 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  (void)parse_observations(input.bytes());
  seal(input.bytes());
  const auto observations = parse_observations(input.bytes());
  if (!observations) return 0;
  check(observations->consistent());
  check(parse_observations(serialize(*observations).bytes())->consistent());
  return 0;
}
