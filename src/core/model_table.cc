#include "core/model_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace shale {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

struct Header {
  char magic[8];
  std::uint64_t checksum[2];  // of everything after it
  std::uint64_t model[2];
  std::uint32_t dimensions[3];
  std::uint32_t reserved;
};
static_assert(sizeof(Header) == 56);

Hash128 sum_of(std::span<const std::byte> bytes) { return hash128(bytes.subspan(offsetof(Header, model))); }

}  // namespace

std::vector<std::byte> serialize_model_table(const ModelTableKind& kind, const Hash128& model,
                                             const ModelTable& table) {
  std::vector<std::byte> bytes(sizeof(Header) + table.numbers.size());
  Header header{.magic = {}, .checksum = {}, .model = {model.high, model.low}, .dimensions = {}, .reserved = 0};
  std::ranges::copy(kind.magic, header.magic);
  std::ranges::copy(table.dimensions, header.dimensions);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ranges::copy(table.numbers, bytes.begin() + sizeof(header));
  const Hash128 checksum = sum_of(bytes);
  header.checksum[0] = checksum.high;
  header.checksum[1] = checksum.low;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

Result<ModelTable> parse_model_table(const ModelTableKind& kind, std::span<const std::byte> bytes, const Hash128& model,
                                     std::uint32_t dimension_max, std::size_t bytes_each) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return fail(ErrorCode::kCorrupt, "{} bytes are no {}", bytes.size(), kind.name);
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view magic(header.magic, sizeof(header.magic));
  if (magic != kind.magic) {
    const bool other_version = magic.starts_with(kind.magic.substr(0, kind.magic.size() - 2));
    if (other_version) return fail(ErrorCode::kMismatch, "a {} of another version", kind.name);
    return fail(ErrorCode::kCorrupt, "no {}", kind.name);
  }
  if (sum_of(bytes) != Hash128{header.checksum[0], header.checksum[1]}) {
    return fail(ErrorCode::kCorrupt, "the {} is damaged: its checksum differs", kind.name);
  }
  ModelTable table{.numbers = bytes.subspan(sizeof(header))};
  std::ranges::copy(header.dimensions, table.dimensions.begin());
  const auto [first, second, third] = table.dimensions;
  if (std::ranges::max(table.dimensions) > dimension_max ||
      table.numbers.size() != std::uint64_t{first} * second * third * bytes_each) {
    return fail(ErrorCode::kCorrupt, "the numbers of the {} contradict its length", kind.name);
  }
  if (model != Hash128{header.model[0], header.model[1]}) {
    return fail(ErrorCode::kMismatch, "the {} is of another model: calibrate this one", kind.name);
  }
  return table;
}

}  // namespace shale
