// The stored object of one entry: a manifest and immutable, checksummed chunks, one per (stratum, plane of bits, layer
// group).
// Format: docs/formats/object.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "codec/quantizer.h"
#include "core/aligned_buffer.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/hash.h"
#include "paging/sequence.h"
#include "scoring/observations.h"
#include "scoring/scorer.h"

namespace shale {

inline constexpr std::uint32_t kObjectFormatVersion = 4;
// Of the manifest of an object whose pages are int8; all else is as in the other.
inline constexpr std::uint32_t kInt8ObjectFormatVersion = 5;

// Everything that must agree before stored bytes may be read: weights, tokenizer, RoPE settings, KV element type, page
// size, format version. Two fingerprints are compared by `hash` alone.
struct Fingerprint {
  Hash128 hash;
  std::string model;  // for people
};

using EntryKey = Hash128;
// hash(2, fingerprint, parent's key, tokens); a root entry's parent key is all zero.
EntryKey entry_key(const Fingerprint& fingerprint, const EntryKey& parent, std::span<const std::int32_t> tokens);

struct ChunkInfo {
  std::uint32_t stratum = 0;  // 0 is the most important
  std::uint32_t plane = kBasePlane;
  std::uint32_t first_layer = 0;  // layers [first_layer, end_layer)
  std::uint32_t end_layer = 0;
  std::uint64_t bytes = 0;
  Hash128 checksum;
};

struct Manifest {
  EntryKey key;
  EntryKey parent;
  Fingerprint fingerprint;
  PageShape shape;
  std::uint32_t first_position = 0;  // of the entry's first token
  std::vector<std::int32_t> tokens;  // the entry's own
  Method method;
  // Cumulative tokens kept per head, on average under a budget, up to and including each stratum.
  std::vector<std::uint32_t> strata_tokens;
  // Under a budget, what each head has of each stratum: [strata][layers · kv_heads], of each head `tokens` in all.
  // Empty otherwise.
  std::vector<std::uint32_t> head_strata;
  std::vector<ChunkInfo> chunks;  // by stratum, then plane, then layers

  // Strata needed for `keep`: the first whose cumulative tokens reach kept_tokens(tokens, keep). `full` and plain
  // quantizers have a single stratum.
  std::uint32_t strata_for(double keep) const;
  std::uint64_t bytes_for(double keep, Bits bits = Bits::kAll) const;
  // Those of strata [0, strata), ascending: what must lie on a tier, and be read. They are the first of the manifest's
  // chunks, less the refinements at fewer bits.
  std::vector<std::uint32_t> chunks_for(std::uint32_t strata, Bits bits = Bits::kAll) const;
  // Whether any chunk refines another: then the object can be stored and read at fewer bits.
  bool has_refinement() const;
  // What the object amounts to at those bits: snapkv+layered2 for the base of snapkv+layered.
  Method method_at(Bits bits) const { return bits == Bits::kAll ? method : method.coarsened(); }
  std::uint32_t layer_groups() const;
  std::uint32_t group_of(const ChunkInfo& chunk) const { return chunk.first_layer / chunks.front().end_layer; }
  // Of the object's blobs on any tier: hash(key, method, checksums of all chunks). Two computations of the same entry
  // that differ in a bit are two objects, whose chunks never meet; a copy cut to its first strata or to fewer bits
  // keeps its name.
  Hash128 name() const;

  AlignedBuffer serialize() const;
  // Checks magic, version, checksum and every field against every other, so that nothing computed from a manifest that
  // parsed is out of bounds; kCorrupt, or kMismatch for another version, with what was wrong.
  static Result<Manifest> parse(std::span<const std::byte> bytes);
};

// Layers per group so that the smallest stratum's base chunk reaches 256 KiB where the entry is large enough. All
// layers for a method that cannot be encoded.
std::uint32_t layers_per_group(const PageShape& shape, const Method& method, std::uint32_t tokens);

// Encodes an entry in bounded pieces. Reads the pages of the entry's tokens, which must be exact, with heads in
// agreement; they must stay referenced until done. One caller at a time.
class ObjectEncoder {
 public:
  // The entry's first token is in slot `first_slot` of slabs[0]. `identity` says key, parent, fingerprint, first
  // position, tokens and method; the rest is filled in. `observations` and `model` are what scorers may read beside
  // pages; `observations` must stay in place until done. kInvalidArgument for unknown methods, scorers whose needs are
  // not met (by name) or slabs that do not fit the tokens; kUnsupported for a head dimension that the quantizer cannot
  // take. `tables`, for quantizers that need them, must outlive the encoder.
  static Result<ObjectEncoder> start(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot,
                                     Manifest identity, const ScorerOptions& options, const Observations& observations,
                                     const ModelTraits& model, const CachegenTables* tables = nullptr);
  ~ObjectEncoder();
  ObjectEncoder(ObjectEncoder&&) noexcept;
  ObjectEncoder& operator=(ObjectEncoder&&) noexcept;

  // Does the next piece: scores a layer a thread, encodes some heads, or sums some chunks; about a millisecond a
  // thread. Under a budget also cuts a stratum, which takes as long as ranking all heads of all layers on one thread.
  // False when all is done.
  bool step(Executor& executor);
  struct Encoded {
    Manifest manifest;
    std::vector<AlignedBuffer> chunks;  // as manifest.chunks
  };
  // Once, after step() returned false.
  Encoded finish();

 private:
  struct State;
  explicit ObjectEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Decodes chunks into a sequence's pages, in any order of chunks. The sequence must stay where it is meanwhile. One
// caller at a time.
class ObjectDecoder {
 public:
  // Reserves pages in `sequence` for the strata of `keep` (kFull leaves it as it was) and advances it by
  // `logical_tokens`, from 1 to manifest.tokens.size(): a hit may end inside the entry; tokens at or beyond are left
  // out. Full objects restore slabs whose heads agree, bit for bit; all others make the sequence lossy, with each
  // stratum on pages of its own, its tokens in order of position. Of ranked objects, tokens that a layer's window
  // (ModelTraits::windows) hides from every query after the hit are left out too. kMismatch for another shape. `tables`
  // as for encoding.
  static Result<ObjectDecoder> start(const Manifest& manifest, double keep, std::uint32_t logical_tokens,
                                     Sequence& sequence, Bits bits = Bits::kAll,
                                     std::span<const std::uint32_t> windows = {},
                                     const CachegenTables* tables = nullptr);
  ~ObjectDecoder();
  ObjectDecoder(ObjectDecoder&&) noexcept;
  ObjectDecoder& operator=(ObjectDecoder&&) noexcept;

  std::uint32_t strata() const;
  // Numbers of the chunks that are wanted, ascending.
  const std::vector<std::uint32_t>& chunks() const;
  // Verifies the checksum and decodes one chunk over the executor, each once. Of a base and its refinement the first to
  // come is copied and waits for the other. kCorrupt when it fails, kMismatch for a chunk packed by other tables; the
  // caller must then drop the sequence, for what lies in its pages is undefined.
  Status decode(std::uint32_t chunk, std::span<const std::byte> bytes, Executor& executor);

 private:
  struct State;
  explicit ObjectDecoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
