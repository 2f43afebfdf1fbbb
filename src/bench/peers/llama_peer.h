// llama.cpp's own benchmark programs, as the peer: each run is a process of its own, and only the rate that it reports
// counts, not the time of starting it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/child_process.h"
#include "core/error.h"

namespace shale {

// What is measured, by the peer as by ourselves.
struct SpeedTest {
  enum class Kind { kPrefill, kDecode, kExact, kBatch };  // kExact: decoding that is reproducible (model/model.h)
  Kind kind = Kind::kPrefill;
  std::uint32_t tokens = 0;     // computed; a sequence, for several
  std::uint32_t depth = 0;      // tokens in the cache before them
  std::uint32_t sequences = 1;  // decoded together
};

class LlamaPeer {
 public:
  // `folder` has llama-bench and llama-batched-bench. kNotFound.
  static Result<LlamaPeer> open(std::filesystem::path folder);

  // Tokens per second, over all sequences together.
  Result<double> measure(const SpeedTest& test, const std::filesystem::path& model, std::uint32_t threads,
                         bool flash_attention) const;
  // The model with its weights in another type, written into `folder`. Needs llama-quantize beside the others.
  Result<std::filesystem::path> requantize(const std::filesystem::path& model, const std::string& type,
                                           const std::filesystem::path& folder) const;

 private:
  explicit LlamaPeer(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

}  // namespace shale
