#include "profile/metrics/quality_metric.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profile/metrics/text_metrics.h"

namespace shale {
namespace {

constexpr std::string_view kCosine = "cosine";
constexpr std::array kNames = {kAgreement, kCosine, std::string_view("f1"), std::string_view("rouge_l"),
                               std::string_view("codebleu")};

class OfTexts final : public AnswerMetric {
 public:
  explicit OfTexts(const TextMetric& metric) : metric_(metric) {}
  std::string_view name() const override { return metric_.name; }
  Result<double> compare(std::string_view answer, std::string_view reference) override {
    return metric_.compare(answer, reference);
  }

 private:
  const TextMetric& metric_;
};

class OfEmbeddings final : public AnswerMetric {
 public:
  explicit OfEmbeddings(std::unique_ptr<SentenceEncoder> encoder) : encoder_(std::move(encoder)) {}
  std::string_view name() const override { return kCosine; }

  Result<double> compare(std::string_view answer, std::string_view reference) override {
    if (answer == reference) return 1;
    SHALE_ASSIGN(const std::vector<float> ours, encoder_->encode(answer));
    SHALE_ASSIGN(const std::vector<float>* theirs, embedding(reference));
    return std::clamp(cosine(ours, *theirs), 0.0, 1.0);
  }

 private:
  static constexpr std::size_t kReferencesMax = 64;

  // Every configuration of a context is compared with the same references.
  Result<const std::vector<float>*> embedding(std::string_view reference) {
    const auto known = references_.find(reference);
    if (known != references_.end()) return &known->second;
    SHALE_ASSIGN(auto vector, encoder_->encode(reference));
    if (references_.size() >= kReferencesMax) references_.clear();
    return &references_.emplace(reference, std::move(vector)).first->second;
  }

  std::unique_ptr<SentenceEncoder> encoder_;
  std::map<std::string, std::vector<float>, std::less<>> references_;
};

}  // namespace

std::span<const std::string_view> quality_metric_names() { return kNames; }

bool needs_encoder(std::string_view metric) { return metric == kCosine; }

Result<std::shared_ptr<AnswerMetric>> make_answer_metric(std::string_view name,
                                                         std::unique_ptr<SentenceEncoder> encoder) {
  if (name == kAgreement) return nullptr;
  if (needs_encoder(name)) {
    if (!encoder) return fail(ErrorCode::kInvalidArgument, "quality in {} needs a sentence encoder", name);
    return std::make_shared<OfEmbeddings>(std::move(encoder));
  }
  const auto metrics = text_metrics();
  const auto metric = std::ranges::find(metrics, name, &TextMetric::name);
  if (metric == metrics.end() || std::ranges::find(kNames, name) == kNames.end()) {
    return fail(ErrorCode::kInvalidArgument, "quality is not measured in '{}'; there are {}", name,
                fmt::join(kNames, ", "));
  }
  return std::make_shared<OfTexts>(*metric);
}

}  // namespace shale
