#include "quantizers/quantizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "quantizers/registry.h"
#include "quantizers/token_copy.h"

namespace shale {
namespace {

template <class Element>
KvRows<Element> block_of(const KvRows<Element>& rows, std::uint32_t first) {
  return {rows.keys + first, rows.values + std::size_t{first} * rows.head_dim, rows.key_stride,
          std::min(kBlockTokens, rows.tokens - first), rows.head_dim};
}

template <class Planes>
std::size_t bytes_of(const Planes& planes) {
  std::size_t bytes = 0;
  for (const auto& plane : planes) bytes += plane.rows * plane.row_bytes;
  return bytes;
}

// What a short block has of a full block's planes.
template <class Planes>
void cut(const Planes& full, const std::byte* from, const Planes& shorter, std::byte* to) {
  for (std::size_t p = 0; p < full.size(); ++p) {
    for (std::size_t row = 0; row < shorter[p].rows; ++row, to += shorter[p].row_bytes) {
      std::memcpy(to, from + row * full[p].row_bytes, shorter[p].row_bytes);
    }
    from += full[p].rows * full[p].row_bytes;
  }
}

// The reverse; what a short block lacks stays as it is.
template <class Planes>
void widen(const Planes& shorter, const std::byte* from, const Planes& full, std::byte* to) {
  for (std::size_t p = 0; p < full.size(); ++p) {
    for (std::size_t row = 0; row < shorter[p].rows; ++row, from += shorter[p].row_bytes) {
      std::memcpy(to + row * full[p].row_bytes, from, shorter[p].row_bytes);
    }
    to += full[p].rows * full[p].row_bytes;
  }
}

// Asking for what is near anyway.
Ahead resident(const KvRows<const Half>& rows) {
  return {reinterpret_cast<const std::byte*>(rows.keys), reinterpret_cast<const std::byte*>(rows.values)};
}

}  // namespace

std::size_t Quantizer::base_bytes(std::uint32_t tokens, std::uint32_t head_dim) const {
  const std::uint32_t tail = tokens % kBlockTokens;
  const std::size_t full = tokens / kBlockTokens * bytes_of(planes(kBlockTokens, head_dim));
  return full + (tail == 0 ? 0 : bytes_of(planes(tail, head_dim)));
}

std::size_t Quantizer::refinement_bytes(std::uint32_t tokens, std::uint32_t head_dim) const {
  const std::uint32_t tail = tokens % kBlockTokens;
  const std::size_t full = tokens / kBlockTokens * bytes_of(refinement_planes(kBlockTokens, head_dim));
  return full + (tail == 0 ? 0 : bytes_of(refinement_planes(tail, head_dim)));
}

void Quantizer::encode(const KvRows<const Half>& rows, const Codes<std::byte>& out, const Ahead& ahead) const {
  assert(out.base.size() == base_bytes(rows.tokens, rows.head_dim) && rows.head_dim % channel_multiple() == 0);
  assert(out.refinement.size() == refinement_bytes(rows.tokens, rows.head_dim));
  const std::size_t step = bytes_of(planes(kBlockTokens, rows.head_dim));
  const std::size_t refinement_step = bytes_of(refinement_planes(kBlockTokens, rows.head_dim));
  std::byte *base = out.base.data(), *refinement = out.refinement.empty() ? nullptr : out.refinement.data();
  for (std::uint32_t first = 0; first < rows.tokens; first += kBlockTokens) {
    const KvRows<const Half> block = block_of(rows, first);
    if (block.tokens == kBlockTokens) {
      encode_block(block, base, refinement, ahead.first ? ahead : resident(block));
    } else {
      encode_tail(block, base, refinement);
    }
    base += step;
    refinement += refinement_step;
  }
}

void Quantizer::decode(const Codes<const std::byte>& in, const KvRows<Half>& rows) const {
  assert(in.base.size() == base_bytes(rows.tokens, rows.head_dim) && rows.head_dim % channel_multiple() == 0);
  assert(in.refinement.size() == refinement_bytes(rows.tokens, rows.head_dim));
  const std::size_t step = bytes_of(planes(kBlockTokens, rows.head_dim));
  const std::size_t refinement_step = bytes_of(refinement_planes(kBlockTokens, rows.head_dim));
  const std::byte *base = in.base.data(), *refinement = in.refinement.empty() ? nullptr : in.refinement.data();
  for (std::uint32_t first = 0; first < rows.tokens; first += kBlockTokens) {
    const KvRows<Half> block = block_of(rows, first);
    block.tokens == kBlockTokens ? decode_block(base, refinement, block) : decode_tail(base, refinement, block);
    base += step;
    refinement += refinement_step;
  }
}

// A tail is coded as a full block whose missing tokens repeat the last one, which changes no minimum and no maximum;
// then only what belongs to its tokens is kept.
void Quantizer::encode_tail(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement) const {
  BlockBuffer padded(rows.head_dim);
  copy_tokens(rows, 0, padded.rows(), 0, rows.tokens);
  for (std::uint32_t i = rows.tokens; i < kBlockTokens; ++i) copy_tokens(rows, rows.tokens - 1, padded.rows(), i, 1);
  const Planes full = planes(kBlockTokens, rows.head_dim), full_fine = refinement_planes(kBlockTokens, rows.head_dim);
  std::vector<std::byte> codes(bytes_of(full)), fine(bytes_of(full_fine));
  encode_block(padded.const_rows(), codes.data(), fine.data(), resident(padded.const_rows()));
  cut(full, codes.data(), planes(rows.tokens, rows.head_dim), base);
  cut(full_fine, fine.data(), refinement_planes(rows.tokens, rows.head_dim), refinement);
}

void Quantizer::decode_tail(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) const {
  const Planes full = planes(kBlockTokens, rows.head_dim), full_fine = refinement_planes(kBlockTokens, rows.head_dim);
  std::vector<std::byte> codes(bytes_of(full)), fine(bytes_of(full_fine));
  widen(planes(rows.tokens, rows.head_dim), base, full, codes.data());
  widen(refinement_planes(rows.tokens, rows.head_dim), refinement, full_fine, fine.data());
  BlockBuffer padded(rows.head_dim);
  decode_block(codes.data(), refinement ? fine.data() : nullptr, padded.rows());
  copy_tokens(padded.const_rows(), 0, rows, 0, rows.tokens);
}

std::vector<std::string_view> quantizer_names() {
  std::vector<std::string_view> names;
  for (const QuantizerEntry& entry : kQuantizers) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<Quantizer>> make_quantizer(std::string_view name, const CachegenTables* tables) {
  for (const QuantizerEntry& entry : kQuantizers) {
    if (entry.name == name) return entry.make(tables);
  }
  return fail(ErrorCode::kInvalidArgument, "unknown quantizer '{}'; known are {}", name,
              fmt::join(quantizer_names(), ", "));
}

}  // namespace shale
