// Stored objects: any bytes are a manifest that parses or an error, and chunks that a manifest describes decode or are
// refused, never anything else.
#include "codec/object.h"
#include "input.h"

namespace {

using namespace shale;

// Chunks are made of the input's bytes, over and over, with checksums that fit.
void decode(Manifest manifest, std::span<const std::byte> bytes) {
  constexpr std::size_t kLimit = 1 << 22;
  if (bytes.empty() || manifest.bytes_for(1.0) > kLimit || manifest.shape.slab_bytes() > kLimit) return;
  const auto pool = PagePool::create(manifest.shape, 8 * kLimit);
  if (!pool) return;
  InlineExecutor executor;
  const auto tokens = static_cast<std::uint32_t>(manifest.tokens.size());
  const std::uint32_t logical = 1 + static_cast<std::uint32_t>(bytes.back()) % tokens;
  std::vector<AlignedBuffer> chunks;
  for (ChunkInfo& info : manifest.chunks) {
    AlignedBuffer& chunk = chunks.emplace_back(info.bytes);
    for (std::size_t i = 0; i < info.bytes; ++i) chunk.data()[i] = bytes[i % bytes.size()];
    if (bytes.front() != std::byte{0}) info.checksum = hash128(chunk.bytes());
  }
  for (const Bits bits : {Bits::kAll, Bits::kBase}) {
    Sequence sequence(**pool);
    auto decoder = ObjectDecoder::start(manifest, 1.0, logical, sequence, bits);
    if (!decoder) return;
    for (const std::uint32_t i : decoder->chunks()) {
      if (!decoder->decode(i, chunks[i].bytes(), executor)) return;
    }
    check(sequence.check_integrity() && sequence.length() == logical);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  if (auto manifest = Manifest::parse(input.bytes())) decode(std::move(*manifest), input.bytes());
  seal(input.bytes());
  if (auto manifest = Manifest::parse(input.bytes())) {
    check(Manifest::parse(manifest->serialize().bytes())->key == manifest->key);
    decode(std::move(*manifest), input.bytes());
  }
  return 0;
}
