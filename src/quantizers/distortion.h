// How far attention over one head moves when tokens are left out or coded, measured on the tokens and queries
// themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quantizers/quantizer.h"

namespace shale {

// A head's keys and values, and some of the queries that look at them; their mean and spread stand for those to come.
//
// Unit of all values: the squared error of attention's output over the squared spread of values that it averages,
// Σ a ‖v − o‖², a the attention that a token receives (mean over the queries) and o = Σ a v the mean output. Leaving
// out everything costs 1, nothing costs 0, and what tokens cost adds up.
class HeadDistortion {
 public:
  // `queries` are [count][head_dim], of all query heads that share this KV head, at least one; all see every token.
  // Elements that are not finite count as zero. Logits are multiplied by `attention_scale`, the model's; 0:
  // 1/√head_dim. Rows and queries are copied.
  HeadDistortion(const KvRows<const Half>& rows, std::span<const float> queries, float attention_scale);

  // Predicted: the sum over the tokens of a ‖x‖², which bounds the squared output error ‖Σ a x‖² from above (Jensen),
  // to first order. x is v − o for a token left out; of one that is coded its value's error, and v − o times its
  // logit's error, for which scale² E(q·δk)² is taken as scale² ‖δk‖² E‖q‖² / d and at most 1.
  double dropped(std::span<const std::uint32_t> tokens) const;
  double coded(std::span<const std::uint32_t> tokens, const Quantizer& quantizer) const;

  // The share of attention that falls on these tokens.
  double attention(std::span<const std::uint32_t> tokens) const;

  // Some tokens and what codes them; the groups that share a scale are of tokens that follow each other here.
  struct Coded {
    std::span<const std::uint32_t> tokens;
    const Quantizer* quantizer;
  };
  // Measured: attention over just these tokens as they decode, exact softmax, mean over the queries.
  double measured(std::span<const Coded> kept) const;

  // Squared error of keys and of values over their squares, all tokens alike, each run of tokens coded by itself.
  struct Error {
    double keys = 0, values = 0;
  };
  Error error(std::span<const std::vector<std::uint32_t>> runs, const Quantizer& quantizer) const;

 private:
  struct Rows {  // [tokens][head_dim]
    std::vector<float> keys, values;
  };
  // The tokens as they come back.
  Rows decoded(std::span<const std::uint32_t> tokens, const Quantizer& quantizer) const;
  std::span<const float> row(const std::vector<float>& of, std::size_t token) const {
    return std::span(of).subspan(token * head_dim_, head_dim_);
  }

  std::uint32_t tokens_, head_dim_;
  float scale_;
  Rows rows_;
  std::vector<float> queries_;
  std::vector<float> attention_;  // [tokens], mean over the queries
  std::vector<float> spread_;     // [tokens], ‖v − o‖²
  double query_power_ = 0;        // scale² E‖q‖² / d
  double unit_ = 0;
};

}  // namespace shale
