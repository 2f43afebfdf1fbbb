// What each quantizer's result must be, the naive way: element by element in double precision.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "quantizers/quantizer.h"

namespace shale {

// Keys and values of one head, token by token: [tokens][head_dim].
struct HeadRows {
  std::uint32_t tokens = 0, head_dim = 0;
  std::vector<float> keys, values;

  HeadRows(std::uint32_t tokens_, std::uint32_t head_dim_)
      : tokens(tokens_), head_dim(head_dim_), keys(std::size_t{tokens} * head_dim), values(keys.size()) {}
  float& key(std::size_t token, std::size_t c) { return keys[token * head_dim + c]; }
  float& value(std::size_t token, std::size_t c) { return values[token * head_dim + c]; }
  float key(std::size_t token, std::size_t c) const { return keys[token * head_dim + c]; }
  float value(std::size_t token, std::size_t c) const { return values[token * head_dim + c]; }
};

// The rows of some tokens.
inline HeadRows rows_at(const HeadRows& rows, const std::vector<std::uint32_t>& tokens) {
  HeadRows some(static_cast<std::uint32_t>(tokens.size()), rows.head_dim);
  for (std::uint32_t i = 0; i < some.tokens; ++i) {
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      some.key(i, c) = rows.key(tokens[i], c);
      some.value(i, c) = rows.value(tokens[i], c);
    }
  }
  return some;
}

// With an offset and a range per key channel, as real keys have; exact in binary16.
inline HeadRows random_head(std::uint32_t tokens, std::uint32_t head_dim, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  HeadRows rows(tokens, head_dim);
  for (std::uint32_t c = 0; c < head_dim; ++c) {
    const float offset = 4 * normal(random), range = std::exp(normal(random));
    for (std::uint32_t i = 0; i < tokens; ++i) {
      rows.key(i, c) = to_float(to_half(offset + range * normal(random)));
      rows.value(i, c) = to_float(to_half(normal(random)));
    }
  }
  return rows;
}

namespace naive {

inline constexpr double kHalfStep = 0x1p-10;  // relative; a binary16 result and a binary16 scale each add at most half

// `elements` share a minimum and a scale of `levels` steps.
template <class Get, class Set>
void bound_group(std::size_t count, double levels, const Get& get, const Set& set) {
  double low = get(0), high = get(0);
  for (std::size_t i = 0; i < count; ++i) {
    low = std::min<double>(low, get(i));
    high = std::max<double>(high, get(i));
  }
  const double magnitude = std::max(std::abs(low), std::abs(high));
  for (std::size_t i = 0; i < count; ++i) {
    set(i, (high - low) / levels / 2 * (1 + 2 * kHalfStep) + magnitude * kHalfStep / 2 + 1e-6);
  }
}

inline HeadRows kivi_bounds(const HeadRows& rows, double levels) {
  HeadRows bounds(rows.tokens, rows.head_dim);
  for (std::uint32_t first = 0; first < rows.tokens; first += 32) {
    const std::uint32_t count = std::min(32u, rows.tokens - first);
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      bound_group(
          count, levels, [&](std::size_t i) { return rows.key(first + i, c); },
          [&](std::size_t i, double bound) { bounds.key(first + i, c) = static_cast<float>(bound); });
    }
  }
  for (std::uint32_t token = 0; token < rows.tokens; ++token) {
    for (std::uint32_t c = 0; c < rows.head_dim; c += 32) {
      bound_group(
          32, levels, [&](std::size_t i) { return rows.value(token, c + i); },
          [&](std::size_t i, double bound) { bounds.value(token, c + i) = static_cast<float>(bound); });
    }
  }
  return bounds;
}

inline HeadRows int8_bounds(const HeadRows& rows) {
  HeadRows bounds(rows.tokens, rows.head_dim);
  const auto bound = [&](const float* from, float* to) {
    double largest = 0;
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) largest = std::max<double>(largest, std::abs(from[c]));
    const double error = largest / 127 / 2 * (1 + 2 * kHalfStep) + largest * kHalfStep / 2 + 1e-6;
    std::fill_n(to, rows.head_dim, static_cast<float>(error));
  };
  for (std::uint32_t i = 0; i < rows.tokens; ++i) {
    bound(&rows.keys[std::size_t{i} * rows.head_dim], &bounds.key(i, 0));
    bound(&rows.values[std::size_t{i} * rows.head_dim], &bounds.value(i, 0));
  }
  return bounds;
}

// cachegen by its generic tables: half a bin from an anchor, or int8's bound for tokens that stray beyond all bins.
inline HeadRows cachegen_bounds(const HeadRows& rows) {
  constexpr double kWidth = 0.5;
  HeadRows bounds = int8_bounds(rows);
  const auto bound = [&](const std::vector<float>& from, std::vector<float>& to) {
    const std::size_t d = rows.head_dim;
    std::vector<double> anchor(d);
    for (std::uint32_t t = 0; t < rows.tokens; ++t) {
      const float* token = &from[t * d];
      if (t % 32 == 0 || t % 32 == 10 || t % 32 == 20) {
        double largest = 0;
        for (std::size_t c = 0; c < d; ++c) largest = std::max<double>(largest, std::abs(token[c]));
        double scale = to_float(to_half(static_cast<float>(largest / 127)));
        if (scale * 127 < largest)
          scale = to_float(Half{static_cast<std::uint16_t>(to_half(static_cast<float>(scale)).bits + 1)});
        for (std::size_t c = 0; c < d; ++c) anchor[c] = scale * std::nearbyint(token[c] / scale);
        continue;
      }
      double farthest = 0;
      for (std::size_t c = 0; c < d; ++c) farthest = std::max(farthest, std::abs(token[c] - anchor[c]));
      if (farthest >= 127 * kWidth) continue;
      for (std::size_t c = 0; c < d; ++c) {
        to[t * d + c] = static_cast<float>(kWidth / 2 + std::abs(token[c]) * kHalfStep + 1e-5);
      }
    }
  };
  bound(rows.keys, bounds.keys);
  bound(rows.values, bounds.values);
  return bounds;
}

// turboquant's levels: what a Gaussian coordinate's magnitude decodes to.
inline std::vector<double> gaussian_levels(int bits) {
  if (bits == 2) return {0.4527800, 1.5104176};
  if (bits == 3) return {0.2450942, 0.7560053, 1.3439093, 2.1519457};
  return {0.1283950, 0.3880483, 0.6567591, 0.9423405, 1.2562312, 1.6180464, 2.0690172, 2.7325896};
}

// Element (r, c) of the rotation: the root of 1 / n, its sign that of the Walsh–Hadamard matrix and of column c.
inline double rotation(std::uint32_t r, std::uint32_t c, std::uint32_t n) {
  std::uint64_t z = (c / 64 + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  z ^= z >> 31;
  const bool minus = (std::popcount(r & c) + (z >> c % 64)) & 1;
  return (minus ? -1 : 1) / std::sqrt(static_cast<double>(n));
}

// How far each of the n elements of a vector may move: the errors that nearest levels make of its rotated coordinates,
// rotated back with signs at their worst.
inline void bound_rotated(const float* from, std::uint32_t n, int bits, float* bounds) {
  const std::vector<double> levels = gaussian_levels(bits);
  double square = 0;
  for (std::uint32_t c = 0; c < n; ++c) square += static_cast<double>(from[c]) * from[c];
  const double norm = std::sqrt(square / n);
  double error = 0;
  for (std::uint32_t r = 0; r < n; ++r) {
    double x = 0;
    for (std::uint32_t c = 0; c < n; ++c) x += rotation(r, c, n) * from[c];
    double nearest = std::numeric_limits<double>::infinity();
    for (const double level : levels) nearest = std::min(nearest, std::abs(std::abs(x) - level * norm));
    error += nearest + norm * 4 * kHalfStep;
  }
  std::fill_n(bounds, n, static_cast<float>(error / std::sqrt(static_cast<double>(n)) + 1e-5));
}

inline HeadRows turboquant_bounds(const HeadRows& rows, int bits) {
  HeadRows bounds(rows.tokens, rows.head_dim);
  const std::uint32_t n = std::min(256u, 1u << std::countr_zero(rows.head_dim));
  for (std::size_t at = 0; at < rows.keys.size(); at += n) {
    bound_rotated(&rows.keys[at], n, bits, &bounds.keys[at]);
    bound_rotated(&rows.values[at], n, bits, &bounds.values[at]);
  }
  return bounds;
}

}  // namespace naive

// How far each element may move; no member of a run is looked at outside its own block.
inline HeadRows quantizer_bounds(std::string_view name, const HeadRows& rows) {
  if (name == "cachegen") return naive::cachegen_bounds(rows);
  if (name == "int8") return naive::int8_bounds(rows);
  if (name == "kivi4") return naive::kivi_bounds(rows, 15);
  if (name == "kivi2") return naive::kivi_bounds(rows, 3);
  if (name == "layered") return naive::kivi_bounds(rows, 16);
  if (name == "layered2") return naive::kivi_bounds(rows, 4);
  if (name.starts_with("turboquant")) return naive::turboquant_bounds(rows, name.back() - '0');
  return HeadRows(rows.tokens, rows.head_dim);
}

// A head in one piece of memory, keys [head_dim][stride].
class HeadMemory {
 public:
  HeadMemory(std::uint32_t tokens, std::uint32_t head_dim, std::uint32_t stride)
      : tokens_(tokens),
        head_dim_(head_dim),
        stride_(stride),
        keys_(std::size_t{head_dim} * stride),
        values_(std::size_t{tokens} * head_dim) {}
  HeadMemory(const HeadRows& rows, std::uint32_t stride) : HeadMemory(rows.tokens, rows.head_dim, stride) {
    for (std::uint32_t i = 0; i < tokens_; ++i) {
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        keys_[std::size_t{c} * stride_ + i] = to_half(rows.key(i, c));
        values_[std::size_t{i} * head_dim_ + c] = to_half(rows.value(i, c));
      }
    }
  }
  KvRows<Half> rows() { return {keys_.data(), values_.data(), stride_, tokens_, head_dim_}; }
  KvRows<const Half> const_rows() const { return {keys_.data(), values_.data(), stride_, tokens_, head_dim_}; }
  HeadRows unpacked() const {
    HeadRows rows(tokens_, head_dim_);
    for (std::uint32_t i = 0; i < tokens_; ++i) {
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        rows.key(i, c) = to_float(keys_[std::size_t{c} * stride_ + i]);
        rows.value(i, c) = to_float(values_[std::size_t{i} * head_dim_ + c]);
      }
    }
    return rows;
  }
  std::vector<Half>& keys() { return keys_; }

 private:
  std::uint32_t tokens_, head_dim_, stride_;
  std::vector<Half> keys_, values_;
};

}  // namespace shale
