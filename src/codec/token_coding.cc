#include "codec/token_coding.h"

#include <algorithm>

#include "codec/token_copy.h"

namespace shale {
namespace {

// The pages' bytes that belong to the block after token `first`'s, in the order of pages.
Ahead ahead_of(std::span<const PageView> pages, const PageShape& shape, std::uint32_t first) {
  const auto at = [&](std::uint32_t token) {
    const std::size_t page = std::min<std::size_t>(token / shape.page_tokens, pages.size() - 1);
    const std::size_t before = token % shape.page_tokens * shape.page_bytes() / shape.page_tokens;
    return reinterpret_cast<const std::byte*>(pages[page].keys) + before;
  };
  const std::uint32_t next = first + std::max(kBlockTokens, shape.page_tokens);
  return {at(next), at(next + kBlockTokens / 2)};
}

}  // namespace

void encode_tokens(const Quantizer& quantizer, std::span<const PageView> pages, const PageShape& shape,
                   std::uint32_t tokens, Codes<std::byte> out) {
  BlockBuffer block(shape.head_dim);
  for (std::uint32_t first = 0; first < tokens; first += kBlockTokens) {
    const std::uint32_t count = std::min(kBlockTokens, tokens - first);
    gather_tokens(pages, shape, first, count, block.rows(count), 0);
    quantizer.encode(block.const_rows(count), take_codes(quantizer, count, shape.head_dim, out),
                     ahead_of(pages, shape, first));
  }
}

void decode_tokens(const Quantizer& quantizer, const Codes<const std::byte>& codes, std::uint32_t tokens,
                   std::uint32_t first, std::uint32_t end, std::span<const std::span<std::byte>> pages,
                   const PageShape& shape) {
  BlockBuffer block(shape.head_dim);
  decode_blocks(quantizer, codes, tokens, first, end, block.rows(), [&](std::uint32_t token, std::uint32_t count) {
    scatter_tokens(block.const_rows(count), 0, pages, shape, token - first, count);
  });
  flush_stream();
}

}  // namespace shale
