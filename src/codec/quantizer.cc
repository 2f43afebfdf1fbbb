#include "codec/quantizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "codec/registry.h"
#include "codec/token_copy.h"

namespace shale {
namespace {

template <class Element>
KvRows<Element> block_of(const KvRows<Element>& rows, std::uint32_t first) {
  return {rows.keys + first, rows.values + std::size_t{first} * rows.head_dim, rows.key_stride,
          std::min(kBlockTokens, rows.tokens - first), rows.head_dim};
}

// Asking for what is near anyway.
Ahead resident(const KvRows<const Half>& rows) {
  return {reinterpret_cast<const std::byte*>(rows.keys), reinterpret_cast<const std::byte*>(rows.values)};
}

}  // namespace

std::size_t Quantizer::block_bytes(std::uint32_t tokens, std::uint32_t head_dim) const {
  std::size_t bytes = 0;
  for (const Plane& plane : planes(tokens, head_dim)) bytes += plane.rows * plane.row_bytes;
  return bytes;
}

std::size_t Quantizer::encoded_bytes(std::uint32_t tokens, std::uint32_t head_dim) const {
  const std::uint32_t tail = tokens % kBlockTokens;
  const std::size_t full = tokens / kBlockTokens * block_bytes(kBlockTokens, head_dim);
  return full + (tail == 0 ? 0 : block_bytes(tail, head_dim));
}

void Quantizer::encode(const KvRows<const Half>& rows, std::span<std::byte> out, const Ahead& ahead) const {
  assert(out.size() == encoded_bytes(rows.tokens, rows.head_dim) && rows.head_dim % channel_multiple() == 0);
  const std::size_t step = block_bytes(kBlockTokens, rows.head_dim);
  std::byte* to = out.data();
  for (std::uint32_t first = 0; first < rows.tokens; first += kBlockTokens, to += step) {
    const KvRows<const Half> block = block_of(rows, first);
    block.tokens == kBlockTokens ? encode_block(block, to, ahead.first ? ahead : resident(block))
                                 : encode_tail(block, to);
  }
}

void Quantizer::decode(std::span<const std::byte> in, const KvRows<Half>& rows) const {
  assert(in.size() == encoded_bytes(rows.tokens, rows.head_dim) && rows.head_dim % channel_multiple() == 0);
  const std::size_t step = block_bytes(kBlockTokens, rows.head_dim);
  const std::byte* from = in.data();
  for (std::uint32_t first = 0; first < rows.tokens; first += kBlockTokens, from += step) {
    const KvRows<Half> block = block_of(rows, first);
    block.tokens == kBlockTokens ? decode_block(from, block) : decode_tail(from, block);
  }
}

// A tail is coded as a full block whose missing tokens repeat the last one, which changes no minimum and no maximum;
// then only what belongs to its tokens is kept.
void Quantizer::encode_tail(const KvRows<const Half>& rows, std::byte* out) const {
  BlockBuffer padded(rows.head_dim);
  copy_tokens(rows, 0, padded.rows(), 0, rows.tokens);
  for (std::uint32_t i = rows.tokens; i < kBlockTokens; ++i) copy_tokens(rows, rows.tokens - 1, padded.rows(), i, 1);
  std::vector<std::byte> full(block_bytes(kBlockTokens, rows.head_dim));
  encode_block(padded.const_rows(), full.data(), resident(padded.const_rows()));
  const Planes full_planes = planes(kBlockTokens, rows.head_dim), short_planes = planes(rows.tokens, rows.head_dim);
  const std::byte* from = full.data();
  for (std::size_t p = 0; p < full_planes.size(); ++p) {
    for (std::size_t row = 0; row < short_planes[p].rows; ++row, out += short_planes[p].row_bytes) {
      std::memcpy(out, from + row * full_planes[p].row_bytes, short_planes[p].row_bytes);
    }
    from += full_planes[p].rows * full_planes[p].row_bytes;
  }
}

void Quantizer::decode_tail(const std::byte* in, const KvRows<Half>& rows) const {
  std::vector<std::byte> full(block_bytes(kBlockTokens, rows.head_dim));
  const Planes full_planes = planes(kBlockTokens, rows.head_dim), short_planes = planes(rows.tokens, rows.head_dim);
  std::byte* to = full.data();
  for (std::size_t p = 0; p < full_planes.size(); ++p) {
    for (std::size_t row = 0; row < short_planes[p].rows; ++row, in += short_planes[p].row_bytes) {
      std::memcpy(to + row * full_planes[p].row_bytes, in, short_planes[p].row_bytes);
    }
    to += full_planes[p].rows * full_planes[p].row_bytes;
  }
  BlockBuffer padded(rows.head_dim);
  decode_block(full.data(), padded.rows());
  copy_tokens(padded.const_rows(), 0, rows, 0, rows.tokens);
}

std::vector<std::string_view> quantizer_names() {
  std::vector<std::string_view> names;
  for (const QuantizerEntry& entry : kQuantizers) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<Quantizer>> make_quantizer(std::string_view name) {
  for (const QuantizerEntry& entry : kQuantizers) {
    if (entry.name == name) return entry.make();
  }
  return fail(ErrorCode::kInvalidArgument, "unknown quantizer '{}'; known are {}", name,
              fmt::join(quantizer_names(), ", "));
}

}  // namespace shale
