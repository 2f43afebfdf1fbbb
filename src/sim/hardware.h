// What a simulated machine can do: how fast it computes, how large its KV is, and the tiers it stores KV on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

struct SimulatedTier {
  std::string name;
  std::uint64_t capacity_bytes = 0;  // ~0: unlimited
  double latency_s = 0;
  double read_bytes_per_s = 0;
  std::string source;  // where the numbers come from
};

struct Hardware {
  std::string name;
  std::uint64_t kv_bytes_per_token = 0;  // uncompressed
  // Prefill of n tokens after D others takes a · n + b · n · (D + n / 2) seconds.
  double prefill_s_per_token = 0;  // a
  double prefill_s_per_pair = 0;   // b
  std::string source = {};
  std::vector<SimulatedTier> tiers = {};  // fast to slow
  // Of a forward step, beside what it computes of prompts: the step itself, and each sequence that decodes in it.
  double step_s = 0, decode_s_per_sequence = 0;

  // Sizes the tier of that name; 0: it is left out. kInvalidArgument lists the tiers there are; 0 bytes of one that is
  // not there are no error.
  Status set_capacity(std::string_view tier, std::uint64_t bytes);

  double prefill_s(std::uint64_t tokens, std::uint64_t depth) const {
    const auto n = static_cast<double>(tokens);
    return prefill_s_per_token * n + prefill_s_per_pair * n * (static_cast<double>(depth) + n / 2);
  }
};

std::vector<std::string> hardware_names();
// kInvalidArgument lists the names.
Result<Hardware> hardware_preset(std::string_view name);

}  // namespace shale
