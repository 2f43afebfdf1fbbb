// Extents at rest: any bytes are a manifest that parses or an error, and blobs that a manifest describes decode or are
// refused, never anything else.
#include <algorithm>

#include "codec/extent.h"
#include "input.h"

namespace {

using namespace shale;

// Blobs are made of the input's bytes, over and over, with checksums that fit.
void decode(ExtentManifest manifest, std::span<const std::byte> bytes) {
  constexpr std::size_t kLimit = 1 << 22;
  if (bytes.empty() || manifest.bytes_for(1) > kLimit || manifest.geometry.bytes(manifest.tokens) > kLimit) return;
  std::vector<AlignedBuffer> blobs;
  for (BlobInfo& info : manifest.blobs) {
    AlignedBuffer& blob = blobs.emplace_back(info.bytes());
    for (std::size_t i = 0; i < blob.size(); ++i) blob.data()[i] = bytes[i % bytes.size()];
    for (BlobChunk& chunk : info.chunks) {
      if (bytes.front() != std::byte{0}) chunk.checksum = hash128(blob.bytes().subspan(chunk.offset, chunk.bytes));
    }
  }
  const std::uint32_t first_chunk = static_cast<std::uint32_t>(bytes.back()) % manifest.chunks();
  const std::uint32_t left = manifest.tokens - first_chunk * manifest.chunk_tokens;
  InlineExecutor executor;
  for (const double keep : {0.1, 1.0}) {
    ExtentSpan span = {.first_chunk = first_chunk, .tokens = left, .keep = keep};
    if (!manifest.geometry.opaque()) span.tokens = 1 + static_cast<std::uint32_t>(bytes[bytes.size() / 2]) % left;
    AlignedBuffer memory(manifest.geometry.bytes(manifest.tokens));
    const MutableKvView view = packed_view(manifest.geometry, KvPacking::kTokensHeads, memory.data(), manifest.tokens);
    auto decoder = ExtentDecoder::start(manifest, span, view);
    check(decoder.has_value());
    for (std::uint32_t i = 0; i < decoder->ranges().size(); ++i) {
      const ExtentRange& range = decoder->ranges()[i];
      if (!decoder->decode(i, blobs[range.blob].bytes().subspan(range.offset, range.bytes), executor)) return;
    }
    const std::vector<std::uint32_t> rows = extent_rows(manifest, span);
    for (std::uint32_t head = 0; head < rows.size(); ++head) check(decoder->positions(head).size() == rows[head]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  if (auto manifest = ExtentManifest::parse(input.bytes())) decode(std::move(*manifest), input.bytes());
  seal(input.bytes());
  if (auto manifest = ExtentManifest::parse(input.bytes())) {
    check(std::ranges::equal(manifest->serialize().bytes(), input.bytes()));
    decode(std::move(*manifest), input.bytes());
  }
  return 0;
}
