#include "runtime/answer_metrics.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "profile/metrics/text_metrics.h"
#include "report/output.h"
#include "runtime/model_registry.h"

namespace shale {
Result<AnswerMetrics> AnswerMetrics::open(const Executor& executor) {
  AnswerMetrics metrics;
  if (const auto path = resolve_model(kEncoderModel)) {
    SHALE_ASSIGN(metrics.encoder_, SentenceEncoder::load(*path, static_cast<std::uint32_t>(executor.threads())));
  } else {
    print_note(fmt::format("shale: no cosine without {0}; `shale model fetch {0}` fetches it", kEncoderModel));
  }
  return metrics;
}

Result<const std::vector<float>*> AnswerMetrics::embedding(const std::string& text) {
  const auto known = embeddings_.find(text);
  if (known != embeddings_.end()) return &known->second;
  SHALE_ASSIGN(auto vector, encoder_->encode(text));
  return &embeddings_.emplace(text, std::move(vector)).first->second;
}

Result<std::map<std::string, double>> AnswerMetrics::compare(const std::string& answer, const std::string& reference) {
  std::map<std::string, double> alike = {{"f1", f1(answer, reference)}, {"rouge_l", rouge_l(answer, reference)}};
  if (encoder_) {
    SHALE_ASSIGN(const std::vector<float>* ours, embedding(answer));
    SHALE_ASSIGN(const std::vector<float>* theirs, embedding(reference));
    alike["cosine"] = cosine(*ours, *theirs);
  }
  return alike;
}

}  // namespace shale
