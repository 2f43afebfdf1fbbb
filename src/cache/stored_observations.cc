#include "cache/stored_observations.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "core/half.h"
#include "core/hash.h"

namespace shale {

namespace {

static_assert(std::endian::native == std::endian::little, "the stored formats are little-endian");

constexpr char kMagic[8] = {'S', 'H', 'A', 'L', 'E', 'O', '2', '\n'};
constexpr std::uint32_t kDimensionMax = 1u << 16;

enum Part : std::uint32_t { kQueries = 1, kSums = 2, kMoments = 4, kRepeat = 8, kAllParts = 15 };

struct Header {
  char magic[8];
  std::uint32_t layers, query_heads, kv_heads, head_dim, tokens, window, parts, reserved;
  std::uint64_t checksum_high, checksum_low;  // of the rest of the header and the values
};

Hash128 checksum(Header header, std::span<const std::byte> values) {
  header.checksum_high = header.checksum_low = 0;
  return Hasher().add(std::as_bytes(std::span(&header, 1))).add(values).finish();
}

// Elements of each part, and bytes of all of them; nothing where the numbers overflow.
struct Sizes {
  std::uint64_t queries = 0, columns = 0, mean = 0, triangle = 0, bytes = 0;
};
std::optional<Sizes> sizes_of(const Header& header) {
  bool overflow = false;
  const auto times = [&](std::uint64_t a, std::uint64_t b) {
    std::uint64_t product = 0;
    overflow |= __builtin_mul_overflow(a, b, &product);
    return product;
  };
  const std::uint64_t heads = times(header.layers, header.query_heads), dim = header.head_dim;
  const std::uint64_t columns = times(times(header.layers, header.kv_heads), header.tokens);
  Sizes sizes;
  if (header.parts & kQueries) sizes.queries = times(times(heads, header.window), dim);
  if (header.parts & (kSums | kRepeat)) sizes.columns = columns;
  if (header.parts & kMoments) {
    sizes.mean = times(heads, dim);
    sizes.triangle = times(heads, dim * (dim + 1) / 2);
  }
  const std::uint64_t columns_parts = ((header.parts & kSums) != 0) + ((header.parts & kRepeat) != 0);
  for (const auto& [elements, width] : {std::pair<std::uint64_t, std::uint64_t>{sizes.queries, sizeof(Half)},
                                        {times(sizes.columns, columns_parts), sizeof(float)},
                                        {sizes.mean, sizeof(float)},
                                        {sizes.triangle, sizeof(float)}}) {
    overflow |= __builtin_add_overflow(sizes.bytes, times(elements, width), &sizes.bytes);
  }
  return overflow ? std::nullopt : std::optional(sizes);
}

// Upper triangles of symmetric matrices, one after another.
std::vector<float> triangles(const std::vector<float>& matrices, std::size_t dim) {
  std::vector<float> packed;
  packed.reserve(matrices.size() / 2 + matrices.size() / std::max<std::size_t>(1, dim));
  for (auto row = matrices.begin(); row != matrices.end();) {
    for (std::size_t i = 0; i < dim; ++i, row += static_cast<std::ptrdiff_t>(dim)) {
      packed.insert(packed.end(), row + static_cast<std::ptrdiff_t>(i), row + static_cast<std::ptrdiff_t>(dim));
    }
  }
  return packed;
}

std::vector<float> matrices(const std::vector<float>& packed, std::size_t count, std::size_t dim) {
  std::vector<float> whole(count * dim * dim);
  auto from = packed.begin();
  for (std::size_t at = 0; at < whole.size(); at += dim * dim) {
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = i; j < dim; ++j) whole[at + i * dim + j] = whole[at + j * dim + i] = *from++;
    }
  }
  return whole;
}

}  // namespace

AlignedBuffer serialize(const Observations& observations) {
  assert(observations.consistent());
  const Observations& o = observations;
  Header header{.magic = {},
                .layers = o.layers,
                .query_heads = o.query_heads,
                .kv_heads = o.kv_heads,
                .head_dim = o.head_dim,
                .tokens = o.tokens,
                .window = o.window,
                .parts = (o.queries.empty() ? 0u : kQueries) | (o.attention_sums.empty() ? 0u : kSums) |
                         (o.query_mean.empty() ? 0u : kMoments) | (o.repeat_attention.empty() ? 0u : kRepeat),
                .reserved = 0,
                .checksum_high = 0,
                .checksum_low = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::vector<Half> halves(o.queries.size());
  std::ranges::transform(o.queries, halves.begin(), [](float value) { return to_half(value); });

  AlignedBuffer buffer(sizeof header + sizes_of(header).value().bytes);
  std::byte* to = buffer.data() + sizeof header;
  const auto put = [&to](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    to = std::ranges::copy(bytes, to).out;
  };
  put(halves);
  put(o.attention_sums);
  put(o.query_mean);
  put(triangles(o.query_covariance, o.head_dim));
  put(o.repeat_attention);
  const Hash128 sum = checksum(header, buffer.bytes().subspan(sizeof header));
  header.checksum_high = sum.high;
  header.checksum_low = sum.low;
  std::memcpy(buffer.data(), &header, sizeof header);
  return buffer;
}

Result<Observations> parse_observations(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return fail(ErrorCode::kCorrupt, "stored observations are cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return fail(ErrorCode::kMismatch, "stored observations are of another format version");
  }
  const auto values = bytes.subspan(sizeof header);
  const bool sane = std::max({header.layers, header.query_heads, header.kv_heads, header.head_dim}) < kDimensionMax &&
                    header.window <= header.tokens && header.parts <= kAllParts;
  const std::optional<Sizes> sizes = sizes_of(header);
  if (!sane || !sizes || sizes->bytes != values.size() ||
      checksum(header, values) != Hash128{header.checksum_high, header.checksum_low}) {
    return fail(ErrorCode::kCorrupt, "stored observations do not match their header or checksum");
  }
  const std::byte* from = values.data();
  const auto get = [&from](std::uint64_t elements, auto element) {
    std::vector<decltype(element)> read(elements);
    if (elements > 0) std::memcpy(read.data(), from, elements * sizeof element);
    from += elements * sizeof element;
    return read;
  };
  Observations o{.layers = header.layers,
                 .query_heads = header.query_heads,
                 .kv_heads = header.kv_heads,
                 .head_dim = header.head_dim,
                 .tokens = header.tokens,
                 .window = header.window};
  for (const Half half : get(sizes->queries, Half())) o.queries.push_back(to_float(half));
  if (header.parts & kSums) o.attention_sums = get(sizes->columns, float());
  o.query_mean = get(sizes->mean, float());
  const std::vector<float> packed = get(sizes->triangle, float());
  o.query_covariance = matrices(packed, sizes->mean / std::max(1u, header.head_dim), header.head_dim);
  if (header.parts & kRepeat) o.repeat_attention = get(sizes->columns, float());
  return o;
}

}  // namespace shale
