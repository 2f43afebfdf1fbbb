#include "scoring/query_moments.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <complex>
#include <vector>

#include "scoring/scorer.h"

namespace shale {

void undo_rope(const Rope& rope, std::uint32_t first_position, std::uint32_t head_dim, std::span<float> vectors) {
  assert(rope.dimensions <= head_dim);
  for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
    const auto [real, imaginary] = rope.channels(pair);
    const double frequency = rope.frequency(pair);
    for (std::size_t i = 0; i < vectors.size() / head_dim; ++i) {
      float &x = vectors[i * head_dim + real], &y = vectors[i * head_dim + imaginary];
      const double angle = -frequency * static_cast<double>(first_position + i);
      const std::complex<double> turned = std::complex<double>(x, y) * std::polar(1.0, angle);
      x = static_cast<float>(turned.real());
      y = static_cast<float>(turned.imag());
    }
  }
}

void query_moments(std::span<const float> queries, std::uint32_t head_dim, std::span<float> mean,
                   std::span<float> covariance) {
  assert(mean.size() == head_dim && covariance.size() == std::size_t{head_dim} * head_dim);
  std::vector<std::span<const float>> rows;
  for (std::size_t at = std::size_t{kMomentSinks} * head_dim; at < queries.size(); at += head_dim) {
    const auto row = queries.subspan(at, head_dim);
    if (std::ranges::all_of(row, [](float value) { return std::isfinite(value); })) rows.push_back(row);
  }
  const double count = static_cast<double>(std::max<std::size_t>(rows.size(), 1));
  std::vector<double> mean_sums(head_dim), products(covariance.size()), centred(head_dim);
  for (const auto row : rows) {
    for (std::size_t c = 0; c < head_dim; ++c) mean_sums[c] += row[c] / count;
  }
  for (const auto row : rows) {
    for (std::size_t c = 0; c < head_dim; ++c) centred[c] = row[c] - mean_sums[c];
    for (std::size_t a = 0; a < head_dim; ++a) {
      for (std::size_t b = 0; b < head_dim; ++b) products[a * head_dim + b] += centred[a] * centred[b];
    }
  }
  std::ranges::transform(mean_sums, mean.begin(), [](double sum) { return static_cast<float>(sum); });
  std::ranges::transform(products, covariance.begin(), [&](double sum) { return static_cast<float>(sum / count); });
}

}  // namespace shale
