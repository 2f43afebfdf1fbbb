// What cachegen knows about a checkpoint: how far each channel of its keys and values strays from an anchor token, and
// how often each code comes up. Made once a checkpoint, from any plain text. File: docs/formats/cachegen_tables.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "quantizers/quantizer.h"

namespace shale {

// Codes -15 … 15 have symbols 1 … 31; symbol 0 stands before any other code, which follows as it is.
inline constexpr std::uint32_t kCachegenSymbols = 32;
inline constexpr std::uint32_t kCachegenTotal = 1 << 12;  // that frequencies add up to

// Bins of each third of the layers, finest first, in standard deviations of the channel's differences.
using CachegenWidths = std::array<float, 3>;
inline constexpr CachegenWidths kCachegenWidths = {0.5f, 1.0f, 1.5f};

struct CachegenChannels;

// Immutable and thread-safe.
class CachegenTables {
 public:
  struct Channel {
    float width = 0.5f;  // of a bin
    // Symbol s has the range [starts[s], starts[s + 1]) of kCachegenTotal; none is empty.
    std::array<std::uint16_t, kCachegenSymbols + 1> starts;
  };

  // Channels of a head of any model, up to 4,096: bins of half a unit, and codes the likelier the smaller.
  static CachegenChannels generic(std::uint32_t head_dim);

  std::uint32_t layers() const { return layers_; }
  std::uint32_t kv_heads() const { return kv_heads_; }
  std::uint32_t head_dim() const { return head_dim_; }
  // kMismatch unless it has exactly these.
  Status check_shape(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim) const;
  // Channels of head number `index` = layer · kv_heads + head.
  CachegenChannels head(std::uint32_t index) const;
  double bits() const { return bits_; }          // that an element of the text takes that was calibrated with
  const Hash128& hash() const { return hash_; }  // of the tables; what is coded by them refers to it

  // `model` is the fingerprint of the checkpoint.
  std::vector<std::byte> serialize(const Hash128& model) const;
  // kCorrupt for bytes that are damaged or no tables; kMismatch for another version, or another model's.
  static Result<CachegenTables> parse(std::span<const std::byte> bytes, const Hash128& model);

 private:
  friend class CachegenCalibrator;
  CachegenTables(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim)
      : layers_(layers),
        kv_heads_(kv_heads),
        head_dim_(head_dim),
        channels_(2 * std::size_t{layers} * kv_heads * head_dim) {}
  std::span<const Channel> row(std::uint32_t number) const {
    return std::span(channels_).subspan(std::size_t{number} * head_dim_, head_dim_);
  }
  // Sets what follows from the channels.
  void finish();

  std::uint32_t layers_, kv_heads_, head_dim_;
  double bits_ = 0;
  Hash128 hash_;
  std::vector<Channel> channels_;  // [layers][kv_heads][keys, values][head_dim]
};

// Channels of one head: [head_dim] each.
struct CachegenChannels {
  std::span<const CachegenTables::Channel> keys, values;
};

inline CachegenChannels CachegenTables::head(std::uint32_t index) const { return {row(2 * index), row(2 * index + 1)}; }

// Two passes over the same text: first how far tokens stray from their anchors, then, coded by the bins that follow
// from it, how often each code comes up. Different heads may be added from different threads at once.
class CachegenCalibrator {
 public:
  CachegenCalibrator(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim,
                     const CachegenWidths& widths = kCachegenWidths);
  void add_spread(std::uint32_t index, const KvRows<const Half>& rows);
  // Called between the passes.
  void set_widths();
  void add_codes(std::uint32_t index, const KvRows<const Half>& rows);
  CachegenTables finish() const;

 private:
  struct Sums {
    double squares = 0;
    std::uint64_t tokens = 0;
    std::array<std::uint64_t, kCachegenSymbols> counts = {};
  };

  CachegenWidths widths_;
  CachegenTables tables_;
  std::vector<Sums> sums_;  // [layers][kv_heads][keys, values][head_dim]
};

}  // namespace shale
