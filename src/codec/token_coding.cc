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
  const std::size_t step = quantizer.base_bytes(kBlockTokens, shape.head_dim);
  const std::size_t refinement_step = quantizer.refinement_bytes(kBlockTokens, shape.head_dim);
  BlockBuffer block(shape.head_dim);
  for (std::uint32_t token = first; token < end; token += kBlockTokens) {
    const std::uint32_t stored = std::min(kBlockTokens, tokens - token);
    const std::size_t index = token / kBlockTokens;
    Codes<const std::byte> in = {codes.base.subspan(index * step, quantizer.base_bytes(stored, shape.head_dim))};
    if (!codes.refinement.empty()) {
      in.refinement =
          codes.refinement.subspan(index * refinement_step, quantizer.refinement_bytes(stored, shape.head_dim));
    }
    quantizer.decode(in, block.rows(stored));
    scatter_tokens(block.const_rows(stored), 0, pages, shape, token - first, std::min(stored, end - token));
  }
  flush_stream();
}

}  // namespace shale
