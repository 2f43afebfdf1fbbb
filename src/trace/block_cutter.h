// Tokens to blocks: full pieces of a prompt and its answer, each named by a hash of everything up to it. Private to the
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace_reader.h"

namespace shale {

class BlockCutter {
 public:
  explicit BlockCutter(std::uint32_t block_tokens) : block_tokens_(block_tokens) {}

  // Fills in `request`'s blocks and its number of prompt tokens. A prompt's last block may be short. With
  // `has_answer`, the answer's tokens fill it up and go on from there; then all blocks are full ones, and those that
  // begin in the prompt but end in the answer are the answer's.
  void cut(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer, bool has_answer,
           RawRequest& request);

 private:
  std::uint32_t block_tokens_;
  std::vector<std::byte> bytes_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace shale
