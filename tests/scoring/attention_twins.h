// Naive twins, in double precision and with whole attention matrices, of scorers that read queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <vector>

#include "scoring/paged_layer.h"

namespace shale {

inline double dot(const float* a, const float* b, std::uint32_t head_dim) {
  double sum = 0;
  for (std::uint32_t c = 0; c < head_dim; ++c) sum += double{a[c]} * b[c];
  return sum;
}

inline std::vector<double> softmax(std::vector<double> logits) {
  const double maximum = *std::ranges::max_element(logits);
  double sum = 0;
  for (double& logit : logits) sum += logit = std::exp(logit - maximum);
  for (double& logit : logits) logit /= sum;
  return logits;
}

// Attention of the query of `token` over the tokens up to it; zeros for the others.
inline std::vector<double> attention_of(LayerRows& rows, std::uint32_t query_head, std::uint32_t token) {
  const std::uint32_t group = rows.query_heads / rows.kv_heads, d = rows.head_dim;
  const std::uint32_t row = token + rows.window_tokens - rows.tokens;
  const float* query = &rows.queries[(std::size_t{query_head} * rows.window_tokens + row) * d];
  std::vector<double> logits;
  for (std::uint32_t i = 0; i <= token; ++i) {
    logits.push_back(dot(query, &rows.key(query_head / group, i, 0), d) / std::sqrt(d));
  }
  std::vector<double> attention = softmax(std::move(logits));
  attention.resize(rows.tokens);
  return attention;
}

inline std::vector<double> pooled(const std::vector<double>& from, std::int64_t kernel) {
  const auto n = std::ssize(from);
  std::vector<double> to(from.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = std::max<std::int64_t>(0, i - kernel / 2); j <= std::min(n - 1, i + kernel / 2); ++j) {
      to[i] += from[j] / static_cast<double>(kernel);
    }
  }
  return to;
}

// Gives tokens [first, end) of every head the largest score of the others + 1.
inline void favour(std::vector<double>& scores, std::uint32_t tokens, std::uint32_t first, std::uint32_t end) {
  double largest = -std::numeric_limits<double>::infinity();
  const auto favoured = [&](std::size_t i) { return i % tokens >= first && i % tokens < end; };
  for (std::size_t i = 0; i < scores.size(); ++i) largest = favoured(i) ? largest : std::max(largest, scores[i]);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = favoured(i) ? largest + 1 : scores[i];
}

inline std::vector<double> snapkv_twin(LayerRows& rows, const ScorerOptions& options) {
  const std::uint32_t n = rows.tokens, past = n - options.window, group = rows.query_heads / rows.kv_heads;
  std::vector<double> scores(std::size_t{rows.kv_heads} * n);
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    std::vector<double> mean(past);
    for (std::uint32_t token = past; token < n; ++token) {
      const auto attention = attention_of(rows, head, token);
      for (std::uint32_t i = 0; i < past; ++i) mean[i] += attention[i] / options.window;
    }
    mean = pooled(mean, options.kernel);
    for (std::uint32_t i = 0; i < past; ++i) scores[std::size_t{head / group} * n + i] += mean[i] / group;
  }
  favour(scores, n, past, n);
  return scores;
}

inline std::vector<double> tova_twin(LayerRows& rows, const ScorerOptions&) {
  const std::uint32_t n = rows.tokens;
  std::vector<double> scores(std::size_t{rows.kv_heads} * n);
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    const auto attention = attention_of(rows, head, n - 1);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += attention[i % n] / rows.query_heads;
  }
  favour(scores, n, n - 1, n);
  return scores;
}

inline std::vector<double> sums_twin(LayerRows& rows) {
  const std::uint32_t n = rows.tokens, group = rows.query_heads / rows.kv_heads;
  std::vector<double> sums(std::size_t{rows.kv_heads} * n);
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    for (std::uint32_t token = 0; token < n; ++token) {
      const auto attention = attention_of(rows, head, token);
      for (std::uint32_t i = 0; i < n; ++i) sums[std::size_t{head / group} * n + i] += attention[i] / group;
    }
  }
  return sums;
}

inline std::vector<double> observed_attention_twin(LayerRows& rows, const ScorerOptions&) {
  std::vector<double> scores = sums_twin(rows);
  for (std::size_t i = 0; i < scores.size(); ++i)
    scores[i] /= rows.tokens - static_cast<std::uint32_t>(i % rows.tokens);
  return scores;
}

// The set kept at each number from the definition alone: half of it, rounded up, the newest.
inline std::vector<double> h2o_twin(LayerRows& rows, const ScorerOptions&) {
  const std::uint32_t n = rows.tokens;
  const std::vector<double> sums = sums_twin(rows);
  std::vector<double> scores(sums.size());
  for (std::size_t first = 0; first < sums.size(); first += n) {
    for (std::uint32_t kept = n; kept > 0; --kept) {
      const std::uint32_t reserve = (kept + 1) / 2;
      std::vector<std::uint32_t> rest(n - reserve);
      std::iota(rest.begin(), rest.end(), 0u);
      std::ranges::sort(rest, [&](auto a, auto b) { return sums[first + a] > sums[first + b]; });
      for (std::uint32_t i = n - reserve; i < n; ++i) scores[first + i] = n - kept + 1;
      for (std::uint32_t i = 0; i < kept / 2; ++i) scores[first + rest[i]] = n - kept + 1;
    }
  }
  return scores;
}

inline std::vector<double> scissorhands_twin(LayerRows& rows, const ScorerOptions&) {
  const std::uint32_t n = rows.tokens, group = rows.query_heads / rows.kv_heads;
  std::vector<double> counts(std::size_t{rows.kv_heads} * n);
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    for (std::uint32_t token = n - std::min(n, 400u); token < n; ++token) {
      const auto attention = attention_of(rows, head, token);
      for (std::uint32_t i = 0; i < n; ++i) {
        counts[std::size_t{head / group} * n + i] += attention[i] > 1.0 / (token + 1) ? 1 : 0;
      }
    }
  }
  return counts;
}

// softmax_i(mean_j S_ji) with the whole matrix S.
inline std::vector<double> redundancy_twin(LayerRows& rows, std::uint32_t head) {
  const std::uint32_t n = rows.tokens, d = rows.head_dim;
  std::vector<double> mean(n);
  for (std::uint32_t j = 0; j < n; ++j) {
    const float* key = &rows.key(head, j, 0);
    std::vector<double> row(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const float* other = &rows.key(head, i, 0);
      row[i] = i == j ? 0 : dot(key, other, d) / std::sqrt(dot(key, key, d) * dot(other, other, d));
    }
    for (std::uint32_t i = n; i-- > 0;) {
      if (row[i] <= 0.5) continue;
      row[i] = 0;
      break;
    }
    for (std::uint32_t i = 0; i < n; ++i) mean[i] += row[i] / n;
  }
  return softmax(mean);
}

inline std::vector<double> rkv_twin(LayerRows& rows, const ScorerOptions& options) {
  const std::uint32_t n = rows.tokens, past = n - 8, group = rows.query_heads / rows.kv_heads;
  std::vector<double> scores;
  for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
    std::vector<double> importance(past);
    for (std::uint32_t token = past; token < n; ++token) {
      std::vector<double> largest(n);
      for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
        const auto attention = attention_of(rows, h, token);
        for (std::uint32_t i = 0; i < n; ++i) largest[i] = std::max(largest[i], attention[i]);
      }
      for (std::uint32_t i = 0; i < past; ++i) importance[i] += largest[i] / 8;
    }
    importance = pooled(importance, options.kernel);
    const std::vector<double> redundancy = redundancy_twin(rows, head);
    for (std::uint32_t i = 0; i < n; ++i) {
      scores.push_back(0.1 * (i < past ? importance[i] : 0.0) - 0.9 * redundancy[i]);
    }
  }
  favour(scores, n, past, n);
  return scores;
}

using Complexes = std::vector<std::complex<double>>;

inline double frequency_of(const Rope& rope, std::uint32_t pair) {
  return rope.scale * std::pow(rope.base, -2.0 * pair / rope.dimensions) /
         (rope.factors.empty() ? 1.0f : rope.factors[pair]);
}

// A vector's pairs of channels, turned by `turns` positions.
inline Complexes turned_pairs(const Rope& rope, const float* vector, double positions) {
  Complexes pairs;
  for (std::uint32_t f = 0; f < rope.dimensions / 2; ++f) {
    const bool halves = rope.pairing == Rope::Pairing::kHalves;
    const std::complex<double> pair(vector[halves ? f : 2 * f], vector[halves ? f + rope.dimensions / 2 : 2 * f + 1]);
    pairs.push_back(pair * std::polar(1.0, positions * frequency_of(rope, f)));
  }
  return pairs;
}

// Pairs of a query before RoPE.
inline Complexes query_pairs(LayerRows& rows, std::uint32_t query_head, std::uint32_t token) {
  const float* query = &rows.queries[(std::size_t{query_head} * rows.tokens + token) * rows.head_dim];
  return turned_pairs(rows.rope, query, -double{1} * (rows.first_position + token));
}

// Every future query's logit would be a sample of a Gaussian; here with the mean rotation, pair by pair as matrices.
inline std::vector<double> expected_attention_twin(LayerRows& rows, const ScorerOptions&) {
  const std::uint32_t n = rows.tokens, d = rows.head_dim, group = rows.query_heads / rows.kv_heads, m = d / 2;
  const bool halves = rows.rope.pairing == Rope::Pairing::kHalves;
  const auto channel = [&](std::uint32_t f, bool imaginary) {
    return halves ? f + (imaginary ? m : 0) : 2 * f + (imaginary ? 1 : 0);
  };
  std::vector<double> rotation(std::size_t{d} * d);
  for (std::uint32_t t = 0; t < 512; ++t) {
    for (std::uint32_t f = 0; f < m; ++f) {
      const double angle = frequency_of(rows.rope, f) * (rows.first_position + n + t);
      const std::uint32_t x = channel(f, false), y = channel(f, true);
      rotation[x * d + x] += std::cos(angle) / 512;
      rotation[x * d + y] -= std::sin(angle) / 512;
      rotation[y * d + x] += std::sin(angle) / 512;
      rotation[y * d + y] += std::cos(angle) / 512;
    }
  }
  std::vector<double> scores(std::size_t{rows.kv_heads} * n);
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    std::vector<std::vector<double>> turned;  // every query under the mean rotation: its moments are the turned moments
    for (std::uint32_t token = 4; token < n; ++token) {
      const Complexes pairs = query_pairs(rows, head, token);
      std::vector<double> query(d), result(d);
      for (std::uint32_t f = 0; f < m; ++f) {
        query[channel(f, false)] = pairs[f].real();
        query[channel(f, true)] = pairs[f].imag();
      }
      for (std::uint32_t a = 0; a < d; ++a) {
        for (std::uint32_t b = 0; b < d; ++b) result[a] += rotation[a * d + b] * query[b];
      }
      turned.push_back(std::move(result));
    }
    std::vector<double> logits;
    for (std::uint32_t i = 4; i < n; ++i) {  // kᵀΣk is the variance of k · q
      double mean = 0, squares = 0;
      for (const auto& query : turned) {
        double product = 0;
        for (std::uint32_t c = 0; c < d; ++c) product += query[c] * rows.key(head / group, i, c);
        mean += product / static_cast<double>(turned.size());
        squares += product * product / static_cast<double>(turned.size());
      }
      logits.push_back(mean / std::sqrt(d) + (squares - mean * mean) / (2.0 * d));
    }
    const std::vector<double> attention = softmax(logits);
    for (std::uint32_t i = 4; i < n; ++i) {
      const float* value = &rows.value(head / group, i, 0);
      scores[std::size_t{head / group} * n + i] += attention[i - 4] / group * std::sqrt(dot(value, value, d));
    }
  }
  favour(scores, n, 0, 4);
  return scores;
}

// With keys turned back and the cosine of every pair and offset, as the definition reads.
inline std::vector<double> triattention_twin(LayerRows& rows, const ScorerOptions&) {
  const std::uint32_t n = rows.tokens, group = rows.query_heads / rows.kv_heads, m = rows.rope.dimensions / 2;
  std::vector<double> scores(std::size_t{rows.kv_heads} * n, -std::numeric_limits<double>::infinity());
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    Complexes mean(m);
    std::vector<double> magnitude(m), raw(n);
    for (std::uint32_t token = 0; token < n; ++token) {
      const Complexes query = query_pairs(rows, head, token);
      for (std::uint32_t f = 0; f < m; ++f) {
        mean[f] += query[f] / double(n);
        magnitude[f] += std::abs(query[f]) / n;
      }
    }
    double total = 0, squares = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const double position = rows.first_position + i, round = rows.first_position + n;
      const Complexes key = turned_pairs(rows.rope, &rows.key(head / group, i, 0), -position);
      for (std::uint32_t f = 0; f < m; ++f) {
        const double phase = std::arg(mean[f] * std::conj(key[f]));
        for (std::uint32_t offset = 1; offset <= 65536; offset *= 2) {
          raw[i] += std::abs(mean[f]) * std::abs(key[f]) *
                    std::cos(frequency_of(rows.rope, f) * (round - position + offset) + phase) / 17;
        }
        raw[i] += (magnitude[f] - std::abs(mean[f])) * std::abs(key[f]);
      }
      total += raw[i] / n;
    }
    for (const double each : raw) squares += (each - total) * (each - total) / n;
    for (std::uint32_t i = 0; i < n; ++i) {
      double& score = scores[std::size_t{head / group} * n + i];
      score = std::max(score, (raw[i] - total) / std::sqrt(squares));
    }
  }
  return scores;
}

}  // namespace shale
