// Estimates what things cost on this machine, from what they cost before.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace shale {

// Prefill of n tokens on top of D takes a·n + b·n·(D + n/2) seconds; a, b ≥ 0 are fitted by least squares to what the
// engine reports, older reports fading. Decoding stored bytes has a rate per quantizer. Thread-safe.
class CostModel {
 public:
  void prefill(std::uint32_t tokens, std::uint32_t depth, double seconds);
  // Before the first report: a guess on the slow side for loading to be tried (200 tokens/s).
  double prefill_s(std::uint32_t tokens, std::uint32_t depth) const;

  void decoded(std::string_view quantizer, std::uint64_t bytes, double seconds);
  // What an earlier process reported.
  void expect_decode(std::string_view quantizer, double bytes_per_s);
  std::unordered_map<std::string, double> decode_rates() const;  // that are known
  // Before the first report: 2 GB/s.
  double decode_s(std::string_view quantizer, std::uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  // Normal equations of the fit; features are n and n·(D + n/2).
  double nn_ = 0, na_ = 0, aa_ = 0, nt_ = 0, at_ = 0;
  bool known_ = false;
  std::unordered_map<std::string, double> bytes_per_s_;
};

}  // namespace shale
