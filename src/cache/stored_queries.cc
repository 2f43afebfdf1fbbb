#include "cache/stored_queries.h"

#include <bit>
#include <cstring>

#include "core/half.h"
#include "core/hash.h"

namespace shale {

namespace {

static_assert(std::endian::native == std::endian::little, "the stored formats are little-endian");

struct Header {
  char magic[8];
  std::uint32_t layers, query_heads, window, head_dim;
  std::uint64_t checksum_high, checksum_low;  // of the values
};
constexpr char kMagic[8] = {'S', 'H', 'A', 'L', 'E', 'Q', '1', '\n'};
constexpr std::uint64_t kDimensionMax = 1u << 16;

}  // namespace

AlignedBuffer serialize(const StoredQueries& queries) {
  AlignedBuffer buffer(sizeof(Header) + queries.values.size() * sizeof(Half));
  const auto values = buffer.bytes().subspan(sizeof(Header));
  for (std::size_t i = 0; i < queries.values.size(); ++i) {
    const Half half = to_half(queries.values[i]);
    std::memcpy(values.data() + i * sizeof half, &half, sizeof half);
  }
  Header header{.magic = {},
                .layers = queries.layers,
                .query_heads = queries.query_heads,
                .window = queries.window,
                .head_dim = queries.head_dim,
                .checksum_high = hash128(values).high,
                .checksum_low = hash128(values).low};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(buffer.data(), &header, sizeof header);
  return buffer;
}

Result<StoredQueries> parse_queries(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return fail(ErrorCode::kCorrupt, "stored queries are cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto values = bytes.subspan(sizeof header);
  const bool sane = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.layers < kDimensionMax &&
                    header.query_heads < kDimensionMax && header.window < kDimensionMax &&
                    header.head_dim < kDimensionMax;
  const std::uint64_t heads = std::uint64_t{header.layers} * header.query_heads;
  const std::uint64_t head_bytes = std::uint64_t{header.window} * header.head_dim * sizeof(Half);
  std::uint64_t expected = 0;
  if (!sane || __builtin_mul_overflow(heads, head_bytes, &expected) || expected != values.size() ||
      hash128(values) != Hash128{header.checksum_high, header.checksum_low}) {
    return fail(ErrorCode::kCorrupt, "stored queries do not match their header or checksum");
  }
  StoredQueries queries{header.layers, header.query_heads, header.window, header.head_dim, {}};
  queries.values.resize(values.size() / sizeof(Half));
  for (std::size_t i = 0; i < queries.values.size(); ++i) {
    Half half;
    std::memcpy(&half, values.data() + i * sizeof half, sizeof half);
    queries.values[i] = to_float(half);
  }
  return queries;
}

}  // namespace shale
