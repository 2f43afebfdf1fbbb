// How long a server is busy with a request: what an engine's measurements say, put in three rates.
#pragma once

#include <cstdint>

namespace shale {

inline constexpr std::uint32_t kServersMax = 65'536;  // that can be simulated

struct ServiceModel {
  double prefill_tokens_per_s = 10'000;  // prompt tokens that are computed
  double cached_tokens_per_s = 1e6;      // prompt tokens whose KV is found
  double decode_tokens_per_s = 0;        // of one request; 0: decoding runs beside and keeps no server busy
  std::uint32_t servers = 1;

  // From the start of service to the first token.
  double prefill_s(std::uint64_t computed_tokens, std::uint64_t cached_tokens) const {
    return static_cast<double>(computed_tokens) / prefill_tokens_per_s +
           static_cast<double>(cached_tokens) / cached_tokens_per_s;
  }
  // From the first token to the last.
  double decode_s(std::uint64_t output_tokens) const {
    return decode_tokens_per_s > 0 ? static_cast<double>(output_tokens) / decode_tokens_per_s : 0;
  }
};

}  // namespace shale
