// What every reader holds its requests to. Private to the room.
#pragma once

#include <bit>
#include <cstdint>

#include "trace/line_source.h"
#include "trace/trace_reader.h"

namespace shale {

inline constexpr std::uint32_t kBlockTokensDefault = 512;
inline constexpr std::uint32_t kBlockTokensMax = std::uint32_t{1} << 20;

inline std::uint64_t blocks_of(std::uint64_t tokens, std::uint32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Turns a file's times into seconds since the first of them, and refuses those that go back unless they are to be
// sorted.
class ArrivalClock {
 public:
  explicit ArrivalClock(bool sort) : sort_(sort) {}

  // `at` points to the time in the current line of `lines`.
  Result<double> arrival(double time_s, const LineSource& lines, const char* at) {
    if (!started_) first_s_ = last_s_ = time_s;
    started_ = true;
    if (time_s < last_s_ && !sort_) {
      return lines.fail_at(at, "the request comes {:.6g} s before the one above it; sort the file, or ask for sorting",
                           last_s_ - time_s);
    }
    last_s_ = time_s;
    return time_s - first_s_;
  }

 private:
  bool sort_, started_ = false;
  double first_s_ = 0, last_s_ = 0;
};

// Whether `blocks` are what `tokens` fill: all of them, or only the full ones.
inline bool block_count_fits(std::uint64_t blocks, std::uint64_t tokens, std::uint32_t block_tokens) {
  return blocks == blocks_of(tokens, block_tokens) || blocks == tokens / block_tokens;
}

}  // namespace shale
