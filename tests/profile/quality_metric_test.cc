#include "profile/metrics/quality_metric.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shale {
namespace {

// Of a text's first letter: 'a' lies at no angle, 'z' opposite.
class Angles final : public SentenceEncoder {
 public:
  explicit Angles(int& encoded) : encoded_(encoded) {}
  Result<std::vector<float>> encode(std::string_view text) override {
    ++encoded_;
    const double angle = std::acos(-1.0) * (text.front() - 'a') / 25;
    return std::vector{static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }

 private:
  int& encoded_;
};

TEST(QualityMetric, AreMadeByName) {
  for (const std::string_view name : quality_metric_names()) {
    int encoded = 0;
    const auto metric = make_answer_metric(name, std::make_unique<Angles>(encoded));
    ASSERT_TRUE(metric) << name;
    if (name == kAgreement) {
      EXPECT_EQ(*metric, nullptr) << "it compares no answers";
      continue;
    }
    EXPECT_EQ((*metric)->name(), name);
    EXPECT_EQ((*metric)->compare("a long way", "a long way").value(), 1) << name;
    EXPECT_LT((*metric)->compare("a long way", "never, so it seems").value(), 1) << name;
  }
  EXPECT_EQ(make_answer_metric("exact_match").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_answer_metric("cosine").error().code, ErrorCode::kInvalidArgument) << "without an encoder";
  EXPECT_TRUE(needs_encoder("cosine"));
  EXPECT_FALSE(needs_encoder("f1"));
}

TEST(QualityMetric, CosineIsOfEmbeddingsAndNeverNegative) {
  int encoded = 0;
  const auto metric = make_answer_metric("cosine", std::make_unique<Angles>(encoded)).value();
  EXPECT_NEAR(metric->compare("b", "a").value(), std::cos(std::acos(-1.0) / 25), 1e-6);
  EXPECT_EQ(encoded, 2);
  EXPECT_EQ(metric->compare("z", "a").value(), 0);
  EXPECT_EQ(encoded, 3) << "the reference is known";
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(metric->compare("b", "a" + std::to_string(i)));
  EXPECT_NEAR(metric->compare("b", "a").value(), std::cos(std::acos(-1.0) / 25), 1e-6) << "forgotten in between";
}

}  // namespace
}  // namespace shale
