// What an ExtentDecoder holds, and the decoding of each kind of blob.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "codec/extent.h"
#include "codec/extent_layout.h"
#include "codec/views/view_copy.h"

namespace shale {

// What a hit sees of an extent.
struct Sight {
  std::uint32_t first_chunk, end_chunk;  // of the extent
  std::uint32_t first_token, end_token;  // likewise
  std::uint32_t tiers;

  Sight(const ExtentManifest& manifest, const ExtentSpan& span)
      : first_chunk(span.first_chunk),
        end_chunk(span.first_chunk + (span.tokens + manifest.chunk_tokens - 1) / manifest.chunk_tokens),
        first_token(span.first_chunk * manifest.chunk_tokens),
        end_token(first_token + span.tokens),
        tiers(manifest.method.scorer.empty() ? 1 : tiers_for(span.keep)) {}
};

// Rows that a head has of tokens [first, end).
inline std::uint32_t rows_between(const ExtentManifest& manifest, std::uint32_t head, std::uint32_t first,
                                  std::uint32_t end, std::uint32_t tiers) {
  return manifest.tiers.empty() ? end - first : manifest.tiers.count(head, first, end, 0, tiers);
}

struct ExtentDecoder::State {
  ExtentManifest manifest;
  ExtentLayout layout;
  Sight sight;
  MutableKvView view;
  std::unique_ptr<BlockCopies<std::byte>> blocks;  // of an exact extent
  TokenCopies<std::byte> tokens;                   // of a lossy one
  std::vector<std::uint32_t> first_chunks;         // in sight, by layer group
  std::vector<ExtentRange> ranges;

  // A range and its bytes.
  struct Source {
    const ExtentRange* range;
    std::span<const std::byte> bytes;
  };
  // The first to come of a base and its refinement is kept until the other is there.
  enum class Progress { kWanted, kTaken, kWaiting, kSkipped };
  std::mutex mutex;                            // guards what follows
  std::vector<Progress> progress;              // by range
  std::vector<AlignedBuffer> waiting;          // likewise
  std::vector<std::optional<Error>> failures;  // by chunk of the extent: the first

  State(const ExtentManifest& of, ExtentLayout laid_out, const Sight& seen, MutableKvView to)
      : manifest(of), layout(std::move(laid_out)), sight(seen), view(std::move(to)), failures(of.chunks()) {}

  const BlobInfo& blob(const ExtentRange& range) const { return manifest.blobs[range.blob]; }
  std::uint32_t kv_heads() const { return manifest.geometry.kv_heads; }
  // A range's bytes of one chunk.
  std::span<const std::byte> part(const ExtentRange& range, std::span<const std::byte> bytes,
                                  std::uint32_t chunk) const {
    const BlobChunk& place = blob(range).chunks[chunk];
    return bytes.subspan(place.offset - range.offset, place.bytes);
  }
  using Fault = std::optional<ErrorCode>;
  Fault check(const Source& source, std::uint32_t chunk) const {
    const bool sound = hash128(part(*source.range, source.bytes, chunk)) == blob(*source.range).chunks[chunk].checksum;
    return sound ? Fault() : ErrorCode::kCorrupt;
  }
  // The tokens of a chunk that are wanted end here.
  std::uint32_t end_of(std::uint32_t chunk) const {
    return std::min(sight.end_token, (chunk + 1) * manifest.chunk_tokens);
  }

  void plan();
  std::optional<std::uint32_t> partner(std::uint32_t range) const;
  using Faults = std::vector<Fault>;  // by chunk of a range: each is written by a thread of its own
  Status settle(const ExtentRange& range, const Faults& faults);
  void copy_layer(const ExtentRange& range, std::uint32_t chunk, std::uint32_t layer, std::span<const std::byte> bytes);
  Status decode_exact(const ExtentRange& range, std::span<const std::byte> bytes, Executor& executor);
  // Runs beside the check of what is not verified yet.
  Status decode_lossy(const Source& base, const Source* refinement, const Source* unverified, Executor& executor);
  Status decode_packed(const Source& source, Executor& executor);
  Status decode_nested(const Source& source, std::uint32_t partner, Executor& executor);
  // One head's codes of a chunk, as they were before packing.
  void decode_section(const CodedSection& section, std::uint32_t tier, std::uint32_t chunk,
                      const Codes<const std::byte>& codes, HalfBlock& block) const;
};

}  // namespace shale
