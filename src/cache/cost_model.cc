#include "cache/cost_model.h"

#include <algorithm>

namespace shale {

namespace {

constexpr double kFade = 0.98;  // weight of a report after each newer one
constexpr double kGuessTokensPerS = 200;
constexpr double kGuessDecodeBytesPerS = 2e9;

double attended(double tokens, double depth) { return tokens * (depth + tokens / 2); }

}  // namespace

void CostModel::prefill(std::uint32_t tokens, std::uint32_t depth, double seconds) {
  if (tokens == 0 || seconds <= 0) return;
  const std::lock_guard lock(mutex_);
  // Relative errors count alike for short and long prefills.
  const double weight = 1 / (seconds * seconds);
  const double n = tokens;
  const double a = attended(tokens, depth);
  nn_ = nn_ * kFade + weight * n * n;
  na_ = na_ * kFade + weight * n * a;
  aa_ = aa_ * kFade + weight * a * a;
  nt_ = nt_ * kFade + weight * n * seconds;
  at_ = at_ * kFade + weight * a * seconds;
  known_ = true;
}

double CostModel::prefill_s(std::uint32_t tokens, std::uint32_t depth) const {
  const std::lock_guard lock(mutex_);
  if (!known_) return tokens / kGuessTokensPerS;
  const double determinant = nn_ * aa_ - na_ * na_;
  double per_token = nt_ / nn_;
  double per_attended = 0;
  if (determinant > 1e-9 * nn_ * aa_) {
    per_token = (nt_ * aa_ - at_ * na_) / determinant;
    per_attended = (at_ * nn_ - nt_ * na_) / determinant;
    if (per_attended < 0) {
      per_token = nt_ / nn_;
      per_attended = 0;
    } else if (per_token < 0) {
      per_token = 0;
      per_attended = at_ / aa_;
    }
  }
  return per_token * tokens + per_attended * attended(tokens, depth);
}

std::unordered_map<std::string, double> CostModel::decode_rates() const {
  const std::lock_guard lock(mutex_);
  return bytes_per_s_;
}

void CostModel::decoded(std::string_view quantizer, std::uint64_t bytes, double seconds) {
  if (bytes == 0 || seconds <= 0) return;
  const std::lock_guard lock(mutex_);
  const double rate = static_cast<double>(bytes) / seconds;
  const auto [at, inserted] = bytes_per_s_.emplace(quantizer, rate);
  if (!inserted) at->second += 0.2 * (rate - at->second);
}

void CostModel::expect_decode(std::string_view quantizer, double bytes_per_s) {
  const std::lock_guard lock(mutex_);
  if (bytes_per_s > 0) bytes_per_s_.insert_or_assign(std::string(quantizer), bytes_per_s);
}

double CostModel::decode_s(std::string_view quantizer, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto at = bytes_per_s_.find(std::string(quantizer));
  return static_cast<double>(bytes) / (at == bytes_per_s_.end() ? kGuessDecodeBytesPerS : at->second);
}

}  // namespace shale
