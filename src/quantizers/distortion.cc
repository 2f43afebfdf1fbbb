#include "quantizers/distortion.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "quantizers/token_copy.h"

namespace shale {
namespace {

float finite(Half value) {
  const float x = to_float(value);
  return std::isfinite(x) ? x : 0;
}

float dot(std::span<const float> a, std::span<const float> b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0f);
}

float square_distance(std::span<const float> a, std::span<const float> b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0f, std::plus<>(),
                               [](float x, float y) { return (x - y) * (x - y); });
}

// Softmax weights of one query over rows of keys.
std::vector<float> attend(std::span<const float> query, std::span<const float> keys, float scale) {
  const std::size_t d = query.size();
  std::vector<float> weights(keys.size() / d);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = scale * dot(query, keys.subspan(i * d, d));
  const float largest = *std::ranges::max_element(weights);
  float sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - largest);
  for (float& weight : weights) weight /= sum;
  return weights;
}

std::vector<float> mix(std::span<const float> weights, std::span<const float> values, std::size_t d) {
  std::vector<float> output(d);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (std::size_t c = 0; c < d; ++c) output[c] += weights[i] * values[i * d + c];
  }
  return output;
}

}  // namespace

HeadDistortion::HeadDistortion(const KvRows<const Half>& rows, std::span<const float> queries, float attention_scale)
    : tokens_(rows.tokens),
      head_dim_(rows.head_dim),
      scale_(attention_scale > 0 ? attention_scale : 1 / std::sqrt(static_cast<float>(rows.head_dim))),
      queries_(queries.begin(), queries.end()),
      attention_(rows.tokens),
      spread_(rows.tokens) {
  assert(!queries.empty() && queries.size() % head_dim_ == 0 && tokens_ > 0);
  for (std::uint32_t i = 0; i < tokens_; ++i) {
    for (std::uint32_t c = 0; c < head_dim_; ++c) {
      rows_.keys.push_back(finite(rows.keys[c * rows.key_stride + i]));
      rows_.values.push_back(finite(rows.values[std::size_t{i} * head_dim_ + c]));
    }
  }
  for (float& element : queries_) element = std::isfinite(element) ? element : 0;
  const std::size_t count = queries_.size() / head_dim_;
  for (std::size_t q = 0; q < count; ++q) {
    const std::vector<float> weights = attend(row(queries_, q), rows_.keys, scale_);
    for (std::uint32_t i = 0; i < tokens_; ++i) attention_[i] += weights[i] / static_cast<float>(count);
  }
  const std::vector<float> output = mix(attention_, rows_.values, head_dim_);
  for (std::uint32_t i = 0; i < tokens_; ++i) {
    spread_[i] = square_distance(row(rows_.values, i), output);
    unit_ += static_cast<double>(attention_[i]) * spread_[i];
  }
  query_power_ = double{scale_} * scale_ * dot(queries_, queries_) / static_cast<double>(count) / head_dim_;
}

double HeadDistortion::dropped(std::span<const std::uint32_t> tokens) const {
  double sum = 0;
  for (const std::uint32_t i : tokens) sum += static_cast<double>(attention_[i]) * spread_[i];
  return unit_ > 0 ? sum / unit_ : 0;
}

double HeadDistortion::coded(std::span<const std::uint32_t> tokens, const Quantizer& quantizer) const {
  const Rows back = decoded(tokens, quantizer);
  double sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double of_value = square_distance(row(back.values, i), row(rows_.values, tokens[i]));
    const double of_logit = query_power_ * square_distance(row(back.keys, i), row(rows_.keys, tokens[i]));
    sum += attention_[tokens[i]] * (of_value + std::min(1.0, of_logit) * spread_[tokens[i]]);
  }
  return unit_ > 0 ? sum / unit_ : 0;
}

double HeadDistortion::attention(std::span<const std::uint32_t> tokens) const {
  double sum = 0;
  for (const std::uint32_t i : tokens) sum += static_cast<double>(attention_[i]);
  return sum;
}

double HeadDistortion::measured(std::span<const Coded> kept) const {
  Rows all;
  for (const Coded& some : kept) {
    const Rows back = decoded(some.tokens, *some.quantizer);
    all.keys.insert(all.keys.end(), back.keys.begin(), back.keys.end());
    all.values.insert(all.values.end(), back.values.begin(), back.values.end());
  }
  if (all.keys.empty()) return 1;
  const std::size_t count = queries_.size() / head_dim_;
  double sum = 0;
  for (std::size_t q = 0; q < count; ++q) {
    const auto output = [&](const Rows& rows) {
      return mix(attend(row(queries_, q), rows.keys, scale_), rows.values, head_dim_);
    };
    sum += square_distance(output(rows_), output(all));
  }
  return unit_ > 0 ? sum / static_cast<double>(count) / unit_ : 0;
}

HeadDistortion::Error HeadDistortion::error(std::span<const std::vector<std::uint32_t>> runs,
                                            const Quantizer& quantizer) const {
  Error errors, squares;
  for (const std::vector<std::uint32_t>& tokens : runs) {
    const Rows back = decoded(tokens, quantizer);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto key = row(rows_.keys, tokens[i]), value = row(rows_.values, tokens[i]);
      errors.keys += square_distance(row(back.keys, i), key);
      errors.values += square_distance(row(back.values, i), value);
      squares.keys += dot(key, key);
      squares.values += dot(value, value);
    }
  }
  return {squares.keys > 0 ? errors.keys / squares.keys : 0, squares.values > 0 ? errors.values / squares.values : 0};
}

HeadDistortion::Rows HeadDistortion::decoded(std::span<const std::uint32_t> tokens, const Quantizer& quantizer) const {
  BlockBuffer block(head_dim_);
  std::vector<std::byte> base(quantizer.base_bytes(kBlockTokens, head_dim_));
  std::vector<std::byte> refinement(quantizer.refinement_bytes(kBlockTokens, head_dim_));
  Rows back;
  for (; !tokens.empty(); tokens = tokens.subspan(std::min<std::size_t>(kBlockTokens, tokens.size()))) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kBlockTokens, tokens.size()));
    const KvRows<Half> rows = block.rows(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        rows.keys[c * rows.key_stride + i] = to_half(row(rows_.keys, tokens[i])[c]);
        rows.values[std::size_t{i} * head_dim_ + c] = to_half(row(rows_.values, tokens[i])[c]);
      }
    }
    const Codes<std::byte> codes{std::span(base).first(quantizer.base_bytes(count, head_dim_)),
                                 std::span(refinement).first(quantizer.refinement_bytes(count, head_dim_))};
    quantizer.encode(block.const_rows(count), codes);
    quantizer.decode({codes.base, codes.refinement}, rows);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        back.keys.push_back(finite(rows.keys[c * rows.key_stride + i]));
        back.values.push_back(finite(rows.values[std::size_t{i} * head_dim_ + c]));
      }
    }
  }
  return back;
}

}  // namespace shale
