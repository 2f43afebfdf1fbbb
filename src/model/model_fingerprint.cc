#include "model/model_fingerprint.h"

#include <algorithm>

namespace shale {

Hash128 model_fingerprint(const GgufFile& file, const ModelOptions& options, Executor& executor) {
  constexpr std::size_t kPiece = 4 << 20;
  const std::span<const std::byte> bytes = file.bytes();
  std::vector<Hash128> pieces((bytes.size() + kPiece - 1) / kPiece);
  executor.parallel_for(pieces.size(), [&](std::size_t i) {
    pieces[i] = hash128(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)));
  });
  Hasher hasher;
  hasher.add(std::string_view("shale model")).add(std::uint64_t{bytes.size()});
  for (const Hash128& piece : pieces) hasher.add(piece);
  hasher.add(std::string_view("fp16")).add(std::uint64_t{options.page_tokens});
  const bool fast = options.weights == WeightChoice::kFast;
  hasher.add(options.float32 ? std::string_view("f32") : fast ? std::string_view("fast") : std::string_view("file"));
  return hasher.finish();
}

}  // namespace shale
