// The stored object of one entry: a manifest and immutable, checksummed chunks, one per (stratum, layer group).
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
#include "scoring/scorer.h"

namespace shale {

inline constexpr std::uint32_t kObjectFormatVersion = 1;

// Everything that must agree before stored bytes may be read: weights, tokenizer, RoPE settings, KV element type, page
// size, format version. Two fingerprints are compared by `hash` alone.
struct Fingerprint {
  Hash128 hash;
  std::string model;  // for people
};

using EntryKey = Hash128;
// hash(fingerprint, parent's key, tokens); a root entry's parent key is all zero.
EntryKey entry_key(const Fingerprint& fingerprint, const EntryKey& parent, std::span<const std::int32_t> tokens);

struct ChunkInfo {
  std::uint32_t stratum = 0;      // 0 is the most important
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
  std::vector<std::uint32_t> strata_tokens;  // cumulative tokens kept per head up to and including each stratum
  std::vector<ChunkInfo> chunks;             // stratum-major, layers ascending

  // Strata needed for `keep`: the first whose cumulative tokens reach kept_tokens(tokens, keep). `full` and plain
  // quantizers have a single stratum.
  std::uint32_t strata_for(double keep) const;
  std::uint64_t bytes_for(double keep) const;
  std::uint32_t layer_groups() const;
  // Index into `chunks`.
  std::uint32_t chunk_index(std::uint32_t stratum, std::uint32_t group) const {
    return stratum * layer_groups() + group;
  }

  AlignedBuffer serialize() const;
  // Checks magic, version, checksum and every field against every other; kCorrupt or kMismatch with what was wrong.
  static Result<Manifest> parse(std::span<const std::byte> bytes);
};

// Layers per group so that the smallest stratum's chunk reaches 256 KiB where the entry is large enough.
std::uint32_t layers_per_group(const PageShape& shape, const Method& method, std::uint32_t tokens);

// Encodes an entry in bounded pieces. Reads the pages of the sequence's tokens [first, first + tokens) (which must be
// exact, with heads in agreement); pages must stay referenced until done.
class ObjectEncoder {
 public:
  // `queries`: [layers][query_heads][window][head_dim] of the entry's last tokens where the scorer needs them, else
  // empty. kInvalidArgument for unknown methods or missing queries.
  static Result<ObjectEncoder> start(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot,
                                     Manifest identity /* key … tokens, method */, const ScorerOptions& options,
                                     std::span<const float> queries, std::uint32_t query_heads, std::uint32_t window);
  ~ObjectEncoder();
  ObjectEncoder(ObjectEncoder&&) noexcept;

  // Encodes the next layer group (all strata of it); false when all are done. About a millisecond of work per call and
  // thread is the aim: layers of the group are spread over the executor.
  bool step(Executor& executor);
  struct Encoded {
    Manifest manifest;
    std::vector<AlignedBuffer> chunks;  // as manifest.chunks
  };
  Encoded finish();

 private:
  struct State;
  explicit ObjectEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Decodes chunks into a sequence's pages, in any order of chunks.
class ObjectDecoder {
 public:
  // Reserves pages in `sequence` for the strata of `keep` (kFull leaves it as it was) and advances it by
  // `logical_tokens` ≤ manifest.tokens.size(): a hit may end inside the entry; tokens at or beyond are left out.
  // Full, exact objects restore slabs whose heads agree, bit for bit.
  static Result<ObjectDecoder> start(const Manifest& manifest, double keep, std::uint32_t logical_tokens,
                                     Sequence& sequence);
  ~ObjectDecoder();
  ObjectDecoder(ObjectDecoder&&) noexcept;

  std::uint32_t strata() const;
  // Verifies the checksum and decodes one chunk over the executor. kCorrupt when it fails; the caller must then drop
  // the sequence.
  Status decode(std::uint32_t chunk, std::span<const std::byte> bytes, Executor& executor);

 private:
  struct State;
  explicit ObjectDecoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
