#include "trace/block_cutter.h"

#include <algorithm>
#include <cstring>

#include "core/hash.h"

namespace shale {

void BlockCutter::cut(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer, bool has_answer,
                      RawRequest& request) {
  tokens_.assign(prompt.begin(), prompt.end());
  tokens_.insert(tokens_.end(), answer.begin(), answer.end());
  request.input_tokens = static_cast<std::uint32_t>(prompt.size());
  request.blocks.clear();
  std::uint64_t id = 0;
  for (std::size_t at = 0; at < tokens_.size(); at += block_tokens_) {
    const std::size_t tokens = std::min<std::size_t>(block_tokens_, tokens_.size() - at);
    if (tokens < block_tokens_ && has_answer) break;
    bytes_.resize(sizeof id + tokens * sizeof tokens_[0]);
    std::memcpy(bytes_.data(), &id, sizeof id);
    std::memcpy(bytes_.data() + sizeof id, tokens_.data() + at, tokens * sizeof tokens_[0]);
    id = hash128(bytes_).low;
    request.blocks.push_back(id);
  }
  const std::size_t prompt_blocks = has_answer ? prompt.size() / block_tokens_ : request.blocks.size();
  request.output_blocks = static_cast<std::uint32_t>(request.blocks.size() - prompt_blocks);
}

}  // namespace shale
