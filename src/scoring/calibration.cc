#include "scoring/calibration.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string_view>

namespace shale {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "SHALET1\n";
constexpr std::uint32_t kMost = 1 << 16;  // layers, heads and pairs of any model

struct Header {
  char magic[8];
  std::uint64_t checksum[2];  // of everything after it
  std::uint64_t model[2];
  std::uint32_t layers, query_heads, pairs, reserved;
};
static_assert(sizeof(Header) == 56);
constexpr std::size_t kSummedFrom = offsetof(Header, model);

}  // namespace

Status Calibration::check_shape(std::uint32_t layers, std::uint32_t query_heads, std::uint32_t pairs) const {
  if (layers == layers_ && query_heads == query_heads_ && pairs == pairs_) return {};
  return fail(ErrorCode::kMismatch,
              "the calibration is of {} layers with {} query heads of {} pairs; {}, {} and {} are wanted", layers_,
              query_heads_, pairs_, layers, query_heads, pairs);
}

std::vector<std::byte> Calibration::serialize(const Hash128& model) const {
  std::vector<std::byte> bytes(sizeof(Header) + table_.size() * sizeof(Pair));
  Header header{.magic = {},
                .checksum = {},
                .model = {model.high, model.low},
                .layers = layers_,
                .query_heads = query_heads_,
                .pairs = pairs_,
                .reserved = 0};
  std::ranges::copy(kMagic, header.magic);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!table_.empty()) std::memcpy(bytes.data() + sizeof(header), table_.data(), table_.size() * sizeof(Pair));
  const Hash128 checksum = hash128(std::span(bytes).subspan(kSummedFrom));
  header.checksum[0] = checksum.high;
  header.checksum[1] = checksum.low;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

Result<Calibration> Calibration::parse(std::span<const std::byte> bytes, const Hash128& model) {
  Header header;
  if (bytes.size() < sizeof(header)) return fail(ErrorCode::kCorrupt, "not a calibration: {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view magic(header.magic, sizeof(header.magic));
  if (magic != kMagic) {
    if (magic.starts_with("SHALET")) return fail(ErrorCode::kMismatch, "a calibration of another version");
    return fail(ErrorCode::kCorrupt, "not a calibration");
  }
  if (hash128(bytes.subspan(kSummedFrom)) != Hash128{header.checksum[0], header.checksum[1]}) {
    return fail(ErrorCode::kCorrupt, "the calibration is damaged: its checksum differs");
  }
  const std::uint64_t pairs_a_layer = std::uint64_t{header.query_heads} * header.pairs;
  if (std::max({header.layers, header.query_heads, header.pairs}) > kMost ||
      bytes.size() - sizeof(header) != header.layers * pairs_a_layer * sizeof(Pair)) {
    return fail(ErrorCode::kCorrupt, "the calibration's numbers contradict its length");
  }
  if (model != Hash128{header.model[0], header.model[1]}) {
    return fail(ErrorCode::kMismatch, "the calibration is of another model: calibrate this one");
  }
  Calibration calibration;
  calibration.layers_ = header.layers;
  calibration.query_heads_ = header.query_heads;
  calibration.pairs_ = header.pairs;
  calibration.table_.resize(header.layers * pairs_a_layer);
  if (!calibration.table_.empty()) {
    std::memcpy(calibration.table_.data(), bytes.data() + sizeof(header), bytes.size() - sizeof(header));
  }
  const bool finite = std::ranges::all_of(calibration.table_, [](const Pair& pair) {
    return std::isfinite(pair.real) && std::isfinite(pair.imaginary) && std::isfinite(pair.magnitude);
  });
  if (!finite) return fail(ErrorCode::kCorrupt, "the calibration holds values that are not finite");
  return calibration;
}

Calibrator::Calibrator(std::uint32_t layers, std::uint32_t query_heads, const Rope& rope)
    : layers_(layers),
      query_heads_(query_heads),
      rope_(rope),
      sums_(std::size_t{layers} * query_heads, {.values = std::vector<std::complex<double>>(rope.pairs()),
                                                .magnitudes = std::vector<double>(rope.pairs())}) {}

void Calibrator::add(std::uint32_t layer, std::uint32_t query_head, std::span<const float> queries,
                     std::uint32_t head_dim) {
  assert(layer < layers_ && query_head < query_heads_ && rope_.dimensions <= head_dim);
  Sums& sums = sums_[std::size_t{layer} * query_heads_ + query_head];
  for (std::size_t first = 0; first + head_dim <= queries.size(); first += head_dim) {
    const auto query = queries.subspan(first, head_dim);
    if (!std::ranges::all_of(query, [](float value) { return std::isfinite(value); })) continue;
    ++sums.queries;
    for (std::uint32_t pair = 0; pair < rope_.pairs(); ++pair) {
      const auto [real, imaginary] = rope_.channels(pair);
      const std::complex<double> value(query[real], query[imaginary]);
      sums.values[pair] += value;
      sums.magnitudes[pair] += std::abs(value);
    }
  }
}

Calibration Calibrator::finish() const {
  Calibration calibration;
  calibration.layers_ = layers_;
  calibration.query_heads_ = query_heads_;
  calibration.pairs_ = rope_.pairs();
  for (const Sums& sums : sums_) {
    const double count = static_cast<double>(std::max<std::uint64_t>(sums.queries, 1));
    for (std::uint32_t pair = 0; pair < rope_.pairs(); ++pair) {
      calibration.table_.push_back({.real = static_cast<float>(sums.values[pair].real() / count),
                                    .imaginary = static_cast<float>(sums.values[pair].imag() / count),
                                    .magnitude = static_cast<float>(sums.magnitudes[pair] / count)});
    }
  }
  return calibration;
}

}  // namespace shale
