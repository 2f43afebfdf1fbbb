// What triattention knows about a model: where the queries of each layer and head point before they are turned. Made
// once a checkpoint, from any plain text. File: docs/formats/calibration.md.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "scoring/rope.h"

namespace shale {

// Immutable and thread-safe.
class Calibration {
 public:
  // A pair of channels of a head's queries before RoPE, read as the complex number q: E[q] and E|q|.
  struct Pair {
    float real = 0;
    float imaginary = 0;
    float magnitude = 0;
  };

  std::uint32_t layers() const { return layers_; }
  std::uint32_t query_heads() const { return query_heads_; }
  std::uint32_t pairs() const { return pairs_; }
  // kMismatch unless it has exactly these layers, heads and pairs.
  Status check_shape(std::uint32_t layers, std::uint32_t query_heads, std::uint32_t pairs) const;
  // [pairs()]
  std::span<const Pair> head(std::uint32_t layer, std::uint32_t query_head) const {
    return std::span(table_).subspan((std::size_t{layer} * query_heads_ + query_head) * pairs_, pairs_);
  }

  // `model` is the fingerprint of the checkpoint: weights and RoPE settings.
  std::vector<std::byte> serialize(const Hash128& model) const;
  // kCorrupt for bytes that are damaged or no calibration; kMismatch for another version, or another model's.
  static Result<Calibration> parse(std::span<const std::byte> bytes, const Hash128& model);

 private:
  friend class Calibrator;
  std::uint32_t layers_ = 0, query_heads_ = 0, pairs_ = 0;
  std::vector<Pair> table_;  // [layers][query_heads][pairs]
};

// Adds up queries. Different (layer, query head) may be added from different threads at once.
class Calibrator {
 public:
  // `rope` says how channels pair; its factors are not read.
  Calibrator(std::uint32_t layers, std::uint32_t query_heads, const Rope& rope);
  // Queries before RoPE, [count][head_dim]. Queries with a value that is not finite are left out.
  void add(std::uint32_t layer, std::uint32_t query_head, std::span<const float> queries, std::uint32_t head_dim);
  // Zeros where nothing was added.
  Calibration finish() const;

 private:
  struct Sums {
    std::uint64_t queries = 0;
    std::vector<std::complex<double>> values;  // [pairs]
    std::vector<double> magnitudes;            // [pairs]
  };

  std::uint32_t layers_, query_heads_;
  Rope rope_;
  std::vector<Sums> sums_;  // [layers][query_heads]
};

}  // namespace shale
