#include "model/query_moments.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/query_moments.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// scatter[first … first + kRows)[column …] += Σ over rows of x x^T.
template <int kRows, class D>
HWY_INLINE void add_products(D d, const float* rows, std::size_t count, std::size_t dim, std::size_t first,
                             std::size_t column, float* scatter) {
  hn::Vec<D> sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = hn::LoadU(d, scatter + (first + r) * dim + column);
  for (std::size_t i = 0; i < count; ++i) {
    const float* row = rows + i * dim;
    const auto right = hn::LoadU(d, row + column);
    for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(hn::Set(d, row[first + r]), right, sum[r]);
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, scatter + (first + r) * dim + column);
}

// Eight rows at a time, from the block of eight columns that holds the diagonal on: `dim` is a multiple of eight.
void add_scatter(const float* rows, std::size_t count, std::size_t dim, float* scatter) {
  const Wide wide;
  const Eight eight;
  for (std::size_t first = 0; first < dim; first += 8) {
    std::size_t column = first;
    for (; column + hn::Lanes(wide) <= dim; column += hn::Lanes(wide)) {
      add_products<8>(wide, rows, count, dim, first, column, scatter);
    }
    for (; column < dim; column += hn::Lanes(eight)) add_products<8>(eight, rows, count, dim, first, column, scatter);
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

namespace shale {

HWY_EXPORT(add_scatter);

void turn_back(const Rope& rope, const float* turns, float* row) {
  for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
    const auto [real, imaginary] = rope.channels(pair);
    const float cosine = turns[2 * pair], sine = turns[2 * pair + 1];
    const float x = row[real], y = row[imaginary];
    row[real] = x * cosine + y * sine;
    row[imaginary] = y * cosine - x * sine;
  }
}

void join_moments(std::span<float> rows, std::uint32_t dim, std::uint64_t before, float* mean, float* scatter) {
  const std::size_t count = rows.size() / dim;
  if (count == 0) return;
  std::vector<float> chunk_mean(dim);
  const auto for_each_element = [&](const auto& visit) {
    for (std::size_t first = 0; first < rows.size(); first += dim) {
      for (std::size_t c = 0; c < dim; ++c) visit(rows[first + c], chunk_mean[c]);
    }
  };
  for_each_element([](float element, float& sum) { sum += element; });
  for (float& each : chunk_mean) each /= static_cast<float>(count);
  for_each_element([](float& element, float centre) { element -= centre; });
  HWY_DYNAMIC_DISPATCH(add_scatter)(rows.data(), count, dim, scatter);

  const auto share = static_cast<float>(static_cast<double>(count) / static_cast<double>(before + count));
  const float between = share * static_cast<float>(before);
  for (std::uint32_t i = 0; i < dim; ++i) chunk_mean[i] -= mean[i];
  for (std::uint32_t i = 0; i < dim; ++i) {
    mean[i] += share * chunk_mean[i];
    for (std::uint32_t j = i; j < dim; ++j) scatter[i * dim + j] += between * chunk_mean[i] * chunk_mean[j];
  }
}

}  // namespace shale
#endif
