// Shale's cache of keys and values for another engine: KV of known token prefixes, kept in memory, on disk and in a
// shared folder, compressed as hard as asked, found again after a restart. None of Shale's own engine is needed.
//
//   auto cache = shale::KvCache::open({.model = "my-model v1 rope=10000", .geometry = {30, 3, 64}, .folder =
//   "/var/kv"});
//   (*cache)->store(tokens, keys, values);            // after computing a prompt
//   auto hit = (*cache)->fetch(prompt, keys, values);  // before computing the next: hit->tokens need no computation
//
// Elements are IEEE binary16, handed over as the 16 bits of a std::uint16_t. Keys are as attention reads them, that is
// after their rotation, so that a token's key does not depend on where it lies in memory.
#pragma once

#include <cstdint>
#include <expected>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shale {

enum class KvErrorCode {
  kInvalidArgument,  // the caller's input is wrong: sizes, geometry, names of methods
  kFull,             // the staging room or every tier is too small for this sequence
  kBusy,             // another process holds the folder
  kIo,               // the operating system said no
  kInternal,
};

// `message` says what was wrong, where, and what to do about it, in one line fit for a user.
struct KvError {
  KvErrorCode code = KvErrorCode::kInternal;
  std::string message;
};

template <class T>
using KvResult = std::expected<T, KvError>;

struct KvGeometry {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t page_tokens = 16;  // 8, 16, 32 or 64
};

struct KvCacheOptions {
  // Names everything that must agree before KV may be used again: weights, tokenizer, RoPE settings. KV stored under
  // another name or geometry is never returned, and left alone.
  std::string model;
  KvGeometry geometry;

  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // 0: no memory tier
  std::filesystem::path folder = {};                    // of the disk tier, created private; empty: none
  std::uint64_t disk_bytes = std::uint64_t{10} << 30;
  std::filesystem::path shared_folder = {};  // any mounted path, shared by many processes; empty: none
  std::uint64_t shared_bytes = std::numeric_limits<std::uint64_t>::max();

  // Uncompressed working room, reserved as address space and touched as used. Bounds the longest sequence that can be
  // stored or fetched: a token takes 4 · layers · kv_heads · head_dim bytes of it.
  std::uint64_t staging_bytes = std::uint64_t{1} << 30;
};

// How KV is compressed.
struct KvConfiguration {
  // Written `scorer[+quantizer]`, `quantizer` or `full`: keydiff, kivi4, vk_ratio+int8. Scorers that read attention
  // queries (snapkv) have none here and are refused.
  std::string method = "full";
  double keep = 1;  // share of tokens kept per head: 0.1, 0.25, 0.5, 0.75 or 1
};

struct KvStoreOptions {
  // Beside a lossy copy an uncompressed one stays on the lowest tier while there is room for it.
  KvConfiguration as = {};
  // What computing these tokens cost; 0: unknown. Entries that cost little make way first where room is short.
  double recompute_s = 0;
  std::string label = {};  // for people
};

// One stretch of tokens of one (layer, KV head): keys and values, each [count][head_dim], one row a token.
template <class Element>
struct KvBlock {
  std::uint32_t layer = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t first = 0;  // row of the first token
  std::uint32_t count = 0;  // at most page_tokens
  Element* keys = nullptr;
  Element* values = nullptr;
};
// Fills a block; rows are tokens.
using KvSource = std::function<void(const KvBlock<std::uint16_t>&)>;
// Takes a block. Rows are the tokens that were kept, exact entries in order of position.
using KvSink = std::function<void(const KvBlock<const std::uint16_t>&)>;

// One stored stretch that a fetch used.
struct KvSourceUsed {
  std::string where;  // "memory", "disk" or "remote"
  KvConfiguration as;
  std::uint32_t tokens = 0;
  std::uint64_t bytes = 0;  // read
};

struct KvFetched {
  std::uint32_t tokens = 0;  // length of the prefix found: the position to go on from. 0: a miss
  bool lossy = false;        // some tokens were dropped or their values changed
  // Rows per (layer · kv_heads + KV head): `tokens` each where nothing was dropped. Rotated keys attend in any order.
  std::vector<std::uint32_t> rows;
  std::vector<KvSourceUsed> sources;
};

struct KvCacheStats {
  std::uint64_t lookups = 0, hits = 0;                                  // of fetch
  std::uint64_t tokens_memory = 0, tokens_disk = 0, tokens_shared = 0;  // fetched
  std::uint64_t corrupt_objects = 0;                                    // failed a checksum: removed, never returned
  std::uint64_t stored_bytes = 0;                                       // encoded since opening
};

// Thread-safe: a lock inside runs one call at a time, callbacks included, which therefore must not call back into the
// cache. Encoding and decoding run on the calling thread.
class KvCache {
 public:
  static KvResult<std::unique_ptr<KvCache>> open(const KvCacheOptions& options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Tokens of the longest stored prefix. Reads nothing and does not count as an access.
  std::uint32_t lookup(std::span<const std::int32_t> tokens) const;

  // Stores the KV of `tokens`, which start a sequence. Of a prefix that is already known only what follows it is asked
  // of `source`. Returns once the bytes are written; storing what is known does nothing.
  KvResult<void> store(std::span<const std::int32_t> tokens, const KvSource& source,
                       const KvStoreOptions& options = {});
  // The same from arrays [layers][kv_heads][tokens][head_dim].
  KvResult<void> store(std::span<const std::int32_t> tokens, std::span<const std::uint16_t> keys,
                       std::span<const std::uint16_t> values, const KvStoreOptions& options = {});

  // Hands the KV of the longest stored prefix to `sink`, layer by layer, head by head: stretches that are stored `as`
  // asked so, all others bit-identical to what was stored. A stored object that proves damaged is dropped, counted, and
  // the next best answer is given; `sink` sees only sound data. A miss is a success of 0 tokens.
  KvResult<KvFetched> fetch(std::span<const std::int32_t> tokens, const KvSink& sink, const KvConfiguration& as = {});
  // The same into arrays [layers][kv_heads][tokens.size()][head_dim]; only the rows found are written.
  KvResult<KvFetched> fetch(std::span<const std::int32_t> tokens, std::span<std::uint16_t> keys,
                            std::span<std::uint16_t> values, const KvConfiguration& as = {});

  KvCacheStats stats() const;

 private:
  struct State;
  explicit KvCache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
