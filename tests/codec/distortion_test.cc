#include "quantizers/distortion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "codec/naive_quantizer.h"

namespace shale {
namespace {

class Distortion : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kTokens = 90, kDim = 32;
  Distortion() { std::iota(all_.begin(), all_.end(), 0u); }

  HeadRows rows_ = random_head(kTokens, kDim, 1);
  std::vector<float> queries_ = random_head(3, kDim, 2).values;
  HeadMemory memory_{rows_, kTokens + 6};
  std::vector<std::uint32_t> all_ = std::vector<std::uint32_t>(kTokens);
  HeadDistortion head_{memory_.const_rows(), queries_, 0};
  std::unique_ptr<Quantizer> none_ = std::move(*make_quantizer("none"));
};

// Attention over some tokens, in double precision.
std::vector<double> naive_output(const HeadRows& rows, const float* query, std::span<const std::uint32_t> tokens) {
  std::vector<double> output(rows.head_dim);
  double sum = 0;
  for (const std::uint32_t i : tokens) {
    double logit = 0;
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) logit += static_cast<double>(query[c]) * rows.key(i, c);
    const double weight = std::exp(logit / std::sqrt(static_cast<double>(rows.head_dim)));
    sum += weight;
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) output[c] += weight * rows.value(i, c);
  }
  for (double& element : output) element /= sum;
  return output;
}

TEST_F(Distortion, IsOneForNothingAndNoneForEverything) {
  EXPECT_NEAR(head_.dropped(all_), 1, 1e-5);
  EXPECT_EQ(head_.dropped({}), 0);
  EXPECT_EQ(head_.coded(all_, *none_), 0);
  EXPECT_NEAR(head_.attention(all_), 1, 1e-5);
  EXPECT_EQ(head_.attention({}), 0);
  EXPECT_EQ(head_.measured({}), 1);
  const HeadDistortion::Coded everything{all_, none_.get()};
  EXPECT_NEAR(head_.measured({&everything, 1}), 0, 1e-6);
}

TEST_F(Distortion, AddsUpOverTokens) {
  const auto some = std::span(all_).first(20), rest = std::span(all_).subspan(20);
  EXPECT_NEAR(head_.dropped(some) + head_.dropped(rest), 1, 1e-5);
}

TEST_F(Distortion, MeasuresWhatAttentionLoses) {
  const auto kept = std::span(all_).subspan(40);
  double error = 0, unit = 0;
  std::vector<double> weights(kTokens), mean(kDim);
  for (std::size_t q = 0; q < 3; ++q) {
    const auto full = naive_output(rows_, &queries_[q * kDim], all_);
    const auto part = naive_output(rows_, &queries_[q * kDim], kept);
    for (std::uint32_t c = 0; c < kDim; ++c) {
      error += (full[c] - part[c]) * (full[c] - part[c]) / 3;
      mean[c] += full[c] / 3;
    }
  }
  for (std::size_t q = 0; q < 3; ++q) {  // E‖v − o‖² = E‖v‖² − ‖o‖²
    HeadRows squares(kTokens, kDim);
    squares.keys = rows_.keys;
    for (std::size_t i = 0; i < squares.values.size(); ++i) squares.values[i] = rows_.values[i] * rows_.values[i];
    for (const double square : naive_output(squares, &queries_[q * kDim], all_)) unit += square / 3;
  }
  for (const double element : mean) unit -= element * element;
  const HeadDistortion::Coded coded{kept, none_.get()};
  EXPECT_NEAR(head_.measured({&coded, 1}), error / unit, 1e-4 * error / unit);
}

TEST_F(Distortion, MultipliesByTheModelsScale) {
  const HeadDistortion scaled(memory_.const_rows(), queries_, 2 / std::sqrt(float{kDim}));
  for (float& query : queries_) query *= 2;
  const HeadDistortion doubled(memory_.const_rows(), queries_, 0);
  const auto some = std::span(all_).first(20);
  const auto int8 = make_quantizer("int8").value();
  const HeadDistortion::Coded coded{some, int8.get()};
  EXPECT_NEAR(scaled.dropped(some), doubled.dropped(some), 1e-5 * doubled.dropped(some));
  EXPECT_NEAR(scaled.coded(some, *int8), doubled.coded(some, *int8), 1e-5 * doubled.coded(some, *int8));
  EXPECT_NEAR(scaled.measured({&coded, 1}), doubled.measured({&coded, 1}), 1e-5 * doubled.measured({&coded, 1}));
}

TEST_F(Distortion, FallsWithBits) {
  double last = 1;
  for (const char* name : {"turboquant2", "layered2", "turboquant3", "layered", "int8"}) {
    const auto quantizer = std::move(*make_quantizer(name));
    const HeadDistortion::Coded coded{all_, quantizer.get()};
    const double predicted = head_.coded(all_, *quantizer), measured = head_.measured({&coded, 1});
    EXPECT_GT(predicted, 0) << name;
    EXPECT_LT(measured, 1) << name;
    if (quantizer->bits() >= 4) {
      EXPECT_LT(predicted, last) << name;
    }
    last = std::min(last, predicted);
    const HeadDistortion::Error error = head_.error({&all_, 1}, *quantizer);
    EXPECT_GT(error.keys, 0) << name;
    EXPECT_LT(error.values, 0.2) << name;
  }
}

TEST_F(Distortion, SurvivesWhatIsNotFinite) {
  rows_.key(3, 4) = std::numeric_limits<float>::quiet_NaN();
  rows_.value(5, 6) = std::numeric_limits<float>::infinity();
  const HeadMemory memory(rows_, kTokens);
  const HeadDistortion head(memory.const_rows(), queries_, 0);
  EXPECT_NEAR(head.dropped(all_), 1, 1e-5);
  const HeadDistortion one(HeadMemory(random_head(1, kDim, 3), 1).const_rows(), queries_, 0);
  const std::uint32_t first = 0;
  EXPECT_EQ(one.dropped({&first, 1}), 0) << "a single token is all there is to average";
}

}  // namespace
}  // namespace shale
