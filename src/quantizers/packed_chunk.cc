#include "quantizers/packed_chunk.h"

#include <atomic>
#include <cstring>

namespace shale {
AlignedBuffer pack_chunk(const Quantizer& quantizer, std::uint32_t head_dim, std::span<const CodedSection> sections,
                         std::span<const std::byte> unpacked) {
  const Hash128 tables = quantizer.tables();
  std::vector<std::byte> packed(packed_header_bytes(sections.size()));
  std::memcpy(packed.data(), &tables.high, sizeof tables.high);
  std::memcpy(packed.data() + sizeof tables.high, &tables.low, sizeof tables.low);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto [head, tokens, offset, bytes] = sections[i];
    const auto section = unpacked.subspan(offset, bytes);
    const auto codes = section.first(quantizer.base_bytes(tokens, head_dim));
    quantizer.of_head(head).pack(codes, tokens, head_dim, packed);
    const auto end = static_cast<std::uint32_t>(packed.size());
    std::memcpy(packed.data() + packed_header_bytes(i), &end, sizeof end);
  }
  AlignedBuffer buffer(packed.size());
  std::memcpy(buffer.data(), packed.data(), packed.size());
  return buffer;
}

Result<AlignedBuffer> unpack_chunk(const Quantizer& quantizer, std::uint32_t head_dim,
                                   std::span<const CodedSection> sections, std::span<const std::byte> packed,
                                   Executor& executor) {
  const auto corrupt = [] { return fail(ErrorCode::kCorrupt, "a packed chunk cannot be unpacked"); };
  if (packed.size() < packed_header_bytes(sections.size())) return corrupt();
  Hash128 tables;
  std::memcpy(&tables.high, packed.data(), sizeof tables.high);
  std::memcpy(&tables.low, packed.data() + sizeof tables.high, sizeof tables.low);
  if (tables != quantizer.tables()) {
    return fail(ErrorCode::kMismatch, "a chunk was packed by other tables of {} than are loaded", quantizer.name());
  }
  std::vector<std::uint32_t> ends(sections.size());
  std::memcpy(ends.data(), packed.data() + packed_header_bytes(0), sections.size() * sizeof(std::uint32_t));
  AlignedBuffer unpacked(sections.back().offset + sections.back().bytes);
  std::memset(unpacked.data(), 0, unpacked.size());
  std::atomic<bool> sound = ends.back() == packed.size();
  executor.parallel_for(sections.size(), [&](std::size_t i) {
    const std::size_t first = i == 0 ? packed_header_bytes(sections.size()) : ends[i - 1];
    if (ends[i] < first || ends[i] > packed.size()) {
      sound = false;
      return;
    }
    const auto from = packed.subspan(first, ends[i] - first);
    const auto [head, tokens, offset, bytes] = sections[i];
    const auto section = unpacked.bytes().subspan(offset, bytes);
    const auto codes = section.first(quantizer.base_bytes(tokens, head_dim));
    if (!quantizer.of_head(head).unpack(from, tokens, head_dim, codes)) sound = false;
  });
  if (!sound) return corrupt();
  return unpacked;
}

}  // namespace shale
