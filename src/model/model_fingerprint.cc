#include "model/model_fingerprint.h"

#include <algorithm>
#include <vector>

namespace shale {

Hash128 content_hash(const GgufFile& file, Executor& executor) {
  constexpr std::size_t kPiece = 4 << 20;
  const std::span<const std::byte> bytes = file.bytes();
  std::vector<Hash128> pieces((bytes.size() + kPiece - 1) / kPiece);
  executor.parallel_for(pieces.size(), [&](std::size_t i) {
    pieces[i] = hash128(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)));
  });
  Hasher hasher;
  hasher.add(std::string_view("shale model")).add(std::uint64_t{bytes.size()});
  for (const Hash128& piece : pieces) hasher.add(piece);
  return hasher.finish();
}

Hash128 model_fingerprint(const Hash128& content, PageElement element, std::uint32_t block_size,
                          std::string_view arithmetic) {
  constexpr std::uint64_t kArithmetic = 2;  // of attention, and which weights compute what
  Hasher hasher;
  hasher.add(kArithmetic).add(content).add(name_of(element)).add(std::uint64_t{block_size}).add(arithmetic);
  return hasher.finish();
}

}  // namespace shale
