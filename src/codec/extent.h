// The extent at rest: a manifest and immutable blobs, one per (importance tier, plane of bits, layer group), each with
// the chunks of the extent one after another, so that a partial hit reads only the bytes of the chunks that it uses and
// verifies each of them. Format: docs/formats/extent.md.
//
//   KvView ─ RunRanker ─> Ranking ─┐                        (only for methods with a scorer)
//   KvView ───────────────────────> ExtentEncoder ─> ExtentManifest + blobs ─> tiers
//   KvView <─────────────────────── ExtentDecoder <─ ExtentManifest + byte ranges of blobs
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "codec/ranking.h"
#include "codec/views/kv_view.h"
#include "core/aligned_buffer.h"
#include "core/buffer_pool.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/hash.h"
#include "quantizers/quantizer.h"

namespace shale {

inline constexpr std::uint32_t kExtentFormatVersion = 6;
inline constexpr std::uint32_t kExtentChunksMax = 16;

// One a block, handed over by the caller: a chain hash over (parent, tokens, extras).
using BlockKey = std::array<std::byte, 32>;
// The hash of all that must agree before stored bytes may be read.
using NamespaceHash = std::array<std::byte, 32>;

// The bytes of one chunk in one blob.
struct BlobChunk {
  std::uint64_t offset = 0;  // in the blob; a multiple of 64
  std::uint64_t bytes = 0;
  Hash128 checksum;
};

struct BlobInfo {
  std::uint32_t tier = 0;  // 0 is the most important
  std::uint32_t plane = kBasePlane;
  std::uint32_t first_layer = 0;  // layers [first_layer, end_layer)
  std::uint32_t end_layer = 0;
  std::vector<BlobChunk> chunks;  // of the extent, in order

  std::uint64_t bytes() const { return chunks.back().offset + chunks.back().bytes; }
};

// A ranking kept beside an exact extent: TierMap::bytes().
struct RankingInfo {
  std::string name;
  std::uint64_t bytes = 0;
  Hash128 checksum;
};

struct ExtentManifest {
  // What the caller of an encoder says.

  NamespaceHash name_space = {};
  Hash128 tenant;
  Hash128 run;        // of the tokens that were saved together: whatever the caller likes, as the next
  std::string label;  // for people; at most 1,024 bytes are kept
  KvGeometry geometry;
  KvPacking packing = KvPacking::kHeadPages;  // of exact extents; opaque blocks and lossy methods have none
  Method method = Method::full();
  std::uint32_t chunk_tokens = 256;         // a multiple of the block
  std::uint32_t tokens = 0;                 // a multiple of the block; all chunks have chunk_tokens but the last
  std::uint32_t first_position = 0;         // of the first token
  BlockKey parent = {};                     // the key before the first; zero: none
  std::vector<BlockKey> keys;               // of every block
  std::vector<std::int32_t> token_ids;      // of every token, or empty: not known
  std::vector<std::uint32_t> windows = {};  // sliding windows by layer, 0: none; or empty

  // What the encoder fills in.

  std::uint32_t layers_per_group = 0;  // at most; see layer_groups()
  TierMap tiers;                       // of methods with a scorer
  std::vector<RankingInfo> rankings;   // of exact extents
  std::vector<BlobInfo> blobs;         // by tier, then plane, then layers

  std::uint32_t chunks() const { return (tokens + chunk_tokens - 1) / chunk_tokens; }
  std::uint32_t tokens_of(std::uint32_t chunk) const;
  // Groups of consecutive layers that either all have a window or none has, [first, end), in order. Blobs are by them.
  struct Layers {
    std::uint32_t first = 0, end = 0;
  };
  std::vector<Layers> layer_groups() const;

  // Parts of the extent on a tier: blobs by number, then rankings, one after another. A part of no bytes is not stored.
  std::uint32_t parts() const { return static_cast<std::uint32_t>(blobs.size() + rankings.size()); }
  std::uint64_t part_bytes(std::uint32_t part) const;
  // Bit by chunk: whose checksums these bytes of the part do not have. All of them where there are too few bytes, or
  // where the part is a ranking.
  std::uint32_t damaged_chunks(std::uint32_t part, std::span<const std::byte> bytes) const;
  // kCorrupt unless these are the part's bytes.
  Status check_part(std::uint32_t part, std::span<const std::byte> bytes) const;
  // Blobs that hold `keep`, ascending: what must lie on a tier. All others can be deleted.
  std::vector<std::uint32_t> blobs_for(double keep) const;
  // Bytes of those blobs' chunks [first_chunk, end_chunk).
  std::uint64_t bytes_for(double keep, std::uint32_t first_chunk, std::uint32_t end_chunk) const;
  std::uint64_t bytes_for(double keep) const { return bytes_for(keep, 0, chunks()); }

  // The name of the parts on any tier: hash(namespace, tenant, parent, keys, method, checksums of all parts). Two saves
  // that rank or round differently are two extents, whose blobs never meet; one that was cut keeps its name. Run and
  // label are not in it: blocks saved in two runs are stored once.
  Hash128 name() const;

  AlignedBuffer serialize() const;
  // Checks the frame, the checksum and every field against every other, so that nothing computed from a manifest that
  // parsed is out of bounds. kCorrupt with what was wrong, or kMismatch for another version.
  static Result<ExtentManifest> parse(std::span<const std::byte> bytes);
};

// kUnsupported for a lossy method that such keys and values cannot be encoded by.
Status check_encodable(const KvGeometry& geometry, const Method& method);

// Bytes that an extent of so many tokens takes at `keep`, for planning: exact but for padding, and for packed
// quantizers, for which it is about that. `windows` are the manifest's: layers that have one are kept whole at every
// keep. kInvalidArgument or kUnsupported for a method or geometry that cannot be encoded.
Result<std::uint64_t> extent_bytes(const KvGeometry& geometry, const Method& method, std::uint32_t tokens,
                                   double keep = 1, std::span<const std::uint32_t> windows = {});

// Encodes an extent in bounded pieces. One caller at a time.
class ExtentEncoder {
 public:
  // `view` is the extent's run: whole blocks, of identity's geometry and tokens; its memory must stay as it is until
  // done. A method with a scorer needs the ranking of its name, of these tokens (TierMap::part cuts it out of the
  // run's); an exact extent keeps all that are given. `tables`, for quantizers that need them, must outlive the
  // encoder. Parts come from `buffers` where there are any. kInvalidArgument for an identity that contradicts itself or
  // the view, unknown methods and rankings that are missing or of other tokens; kUnsupported for opaque blocks by a
  // lossy method, and for a head dimension that the quantizer cannot take.
  static Result<ExtentEncoder> start(KvView view, ExtentManifest identity, std::vector<Ranking> rankings = {},
                                     const CachegenTables* tables = nullptr, BufferPool* buffers = nullptr);
  ~ExtentEncoder();
  ExtentEncoder(ExtentEncoder&&) noexcept;
  ExtentEncoder& operator=(ExtentEncoder&&) noexcept;

  // Does the next piece, about a millisecond a thread. False when all is done.
  bool step(Executor& executor);
  struct Encoded {
    ExtentManifest manifest;
    std::vector<AlignedBuffer> parts;  // ExtentManifest::parts()
  };
  // Once, after step() returned false.
  Encoded finish();

 private:
  struct State;
  explicit ExtentEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The part of an extent that is loaded: tokens [first_chunk · chunk_tokens, + tokens), which may end inside a chunk.
struct ExtentSpan {
  std::uint32_t first_chunk = 0;
  std::uint32_t tokens = 0;        // at least 1
  double keep = 1;                 // in (0, 1]; without a scorer, all is kept
  std::uint32_t tokens_after = 0;  // of the same hit, in the extents that follow: windows count from the hit's end
};

// Consecutive chunks of a blob: one read.
struct ExtentRange {
  std::uint32_t blob = 0;                        // and part
  std::uint32_t group = 0;                       // of layers
  std::uint32_t first_chunk = 0, end_chunk = 0;  // of the extent
  std::uint64_t offset = 0, bytes = 0;           // in the blob
};

// Rows that each head has of a span, [layers · kv_heads]; without a scorer span.tokens of each. An engine must have
// room for them, and knows them before a byte is read. Opaque: empty.
std::vector<std::uint32_t> extent_rows(const ExtentManifest& manifest, const ExtentSpan& span);

// Decodes ranges of blobs into a view, in any order of ranges, on any thread: decode() may be called from several at a
// time for different ranges, each with an executor of its own.
//
// Where things come to lie: row r of a head is token r of the view. Without a scorer every token keeps its place: row =
// token - the span's first. With one, each head's kept tokens lie in rows 0, 1, … in order of position, and rows beyond
// are left as they are; layers with a window keep all. Chunks that a layer's window hides from every query after the
// hit's end are neither read nor written: first_row() says where such a layer begins.
class ExtentDecoder {
 public:
  // `view` must have room for span.tokens without a scorer, and with one for the most that extent_rows() says; nothing
  // is written to it outside decode(). Exact extents need a view of their own element, lossy ones any but opaque.
  // `tables` as for encoding; it and the view's memory must outlive the decoder. kInvalidArgument for a span beyond the
  // extent or a view that is too short or does not pass check(), kMismatch for another geometry.
  static Result<ExtentDecoder> start(const ExtentManifest& manifest, const ExtentSpan& span, MutableKvView view,
                                     const CachegenTables* tables = nullptr);
  ~ExtentDecoder();
  ExtentDecoder(ExtentDecoder&&) noexcept;
  ExtentDecoder& operator=(ExtentDecoder&&) noexcept;

  // The ranges to read, by layer group, so that computation can follow: group g is there when all of its ranges are
  // decoded. None is of no bytes.
  const std::vector<ExtentRange>& ranges() const;
  const std::vector<ExtentManifest::Layers>& layer_groups() const;

  // Verifies and decodes one range, each once, over the executor; its bytes begin at a multiple of 64. kCorrupt or
  // kMismatch (packed by other tables) when a chunk of it fails: the others of the range arrive all the same, and
  // failed() says which did not. kInvalidArgument for a range that was decoded before, or other than its bytes.
  Status decode(std::uint32_t range, std::span<const std::byte> bytes, Executor& executor);
  // For bytes that could not be read: the range's chunks fail for that reason.
  void skip(std::uint32_t range, const Error& why);
  // Whether a chunk of the extent failed in any layer. What the view then holds of it is undefined; all that came
  // before is as it should be.
  bool failed(std::uint32_t chunk) const { return failure(chunk) != nullptr; }
  // Why it did first; null where it did not. Stays as long as the decoder.
  const Error* failure(std::uint32_t chunk) const;

  // Rows of head number `head` that the chunks before `end_chunk` fill.
  std::uint32_t rows(std::uint32_t head, std::uint32_t end_chunk) const;
  std::uint32_t first_row(std::uint32_t layer) const;
  // Positions of the head's rows, from its first, less that of the extent's first token.
  std::vector<std::uint32_t> positions(std::uint32_t head) const;

 private:
  struct State;
  explicit ExtentDecoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
