// A run of tokens of one head, out of codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "quantizers/quantizer.h"

namespace shale {

// Decodes tokens [first, end) of `codes`, which hold `tokens`, block by block into `block`, of kBlockTokens, and calls
// visit(first token, tokens) for each; `first` is a multiple of kBlockTokens.
template <class Visit>
void decode_blocks(const Quantizer& quantizer, const Codes<const std::byte>& codes, std::uint32_t tokens,
                   std::uint32_t first, std::uint32_t end, KvRows<Half> block, const Visit& visit) {
  const std::size_t step = quantizer.base_bytes(kBlockTokens, block.head_dim);
  const std::size_t refinement_step = quantizer.refinement_bytes(kBlockTokens, block.head_dim);
  for (std::uint32_t token = first; token < end; token += kBlockTokens) {
    block.tokens = std::min(kBlockTokens, tokens - token);
    const bool whole = block.tokens == kBlockTokens;
    const std::size_t index = token / kBlockTokens;
    const auto base =
        codes.base.subspan(index * step, whole ? step : quantizer.base_bytes(block.tokens, block.head_dim));
    const auto refinement = codes.refinement.subspan(
        index * refinement_step, whole ? refinement_step : quantizer.refinement_bytes(block.tokens, block.head_dim));
    quantizer.decode({base, refinement}, block);
    visit(token, std::min(block.tokens, end - token));
  }
}

}  // namespace shale
