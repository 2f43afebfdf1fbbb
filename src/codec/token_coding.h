// A run of tokens of one head, between pages and codes.
#pragma once

#include <cstdint>
#include <span>

#include "codec/quantizer.h"
#include "paging/page_shape.h"

namespace shale {

// Encodes the first `tokens` tokens of `pages`, of halves and all full but the last, into the first bytes of `out`.
void encode_tokens(const Quantizer& quantizer, std::span<const PageView> pages, const PageShape& shape,
                   std::uint32_t tokens, Codes<std::byte> out);

// Decodes tokens [first, end) of `codes`, which hold `tokens`, into `pages` of either element, the first of which is
// for token `first`: a multiple of the block and of the page. Without a refinement, at fewer bits.
void decode_tokens(const Quantizer& quantizer, const Codes<const std::byte>& codes, std::uint32_t tokens,
                   std::uint32_t first, std::uint32_t end, std::span<const std::span<std::byte>> pages,
                   const PageShape& shape);

}  // namespace shale
