// What things cost on this machine, from what they cost before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "codec/method.h"

namespace shale {

// Prefill of n tokens at depth D takes a·n + b·n·(D + n/2) seconds; a and b are fitted by least squares to what the
// engine reports, with exponentially fading weight. Decoding of stored bytes has a rate per quantizer.
// Not thread-safe.
class CostModel {
 public:
  void prefill(std::uint32_t tokens, std::uint32_t depth, double seconds);
  double prefill_s(std::uint32_t tokens, std::uint32_t depth) const;
  bool knows_prefill() const { return samples_ > 0; }

  void decoded(std::string_view quantizer, std::uint64_t bytes, double seconds);
  double decode_s(std::string_view quantizer, std::uint64_t bytes) const;

 private:
  // Sums for the two-parameter fit: features n and n·(D + n/2).
  double s11_ = 0, s12_ = 0, s22_ = 0, t1_ = 0, t2_ = 0;
  std::uint64_t samples_ = 0;
  std::unordered_map<std::string, double> decode_bytes_per_s_;
};

}  // namespace shale
