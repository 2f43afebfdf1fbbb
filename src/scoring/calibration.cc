#include "scoring/calibration.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/model_table.h"

namespace shale {
namespace {

constexpr ModelTableKind kKind{"SHALET1\n", "calibration"};
constexpr std::uint32_t kMost = 1 << 16;  // layers, heads and pairs of any model

}  // namespace

Status Calibration::check_shape(std::uint32_t layers, std::uint32_t query_heads, std::uint32_t pairs) const {
  if (layers == layers_ && query_heads == query_heads_ && pairs == pairs_) return {};
  return fail(ErrorCode::kMismatch,
              "the calibration is of {} layers with {} query heads of {} pairs; {}, {} and {} are wanted", layers_,
              query_heads_, pairs_, layers, query_heads, pairs);
}

std::vector<std::byte> Calibration::serialize(const Hash128& model) const {
  return serialize_model_table(
      kKind, model, {.dimensions = {layers_, query_heads_, pairs_}, .numbers = std::as_bytes(std::span(table_))});
}

Result<Calibration> Calibration::parse(std::span<const std::byte> bytes, const Hash128& model) {
  SHALE_ASSIGN(const ModelTable table, parse_model_table(kKind, bytes, model, kMost, sizeof(Pair)));
  Calibration calibration;
  calibration.layers_ = table.dimensions[0];
  calibration.query_heads_ = table.dimensions[1];
  calibration.pairs_ = table.dimensions[2];
  calibration.table_.resize(table.numbers.size() / sizeof(Pair));
  std::ranges::copy(table.numbers, std::as_writable_bytes(std::span(calibration.table_)).begin());
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
