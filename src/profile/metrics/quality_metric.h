// Metrics of quality by name. Adding one that compares texts adds its function to text_metrics.h and its name here.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "metadata/answer_metric.h"
#include "model/sentence_encoder.h"

namespace shale {

// "agreement", "cosine", "f1", "rouge_l", "codebleu".
std::span<const std::string_view> quality_metric_names();
// Whether it compares embeddings of whole answers.
bool needs_encoder(std::string_view metric);

// Null for agreement, which compares no answers. `encoder`: for metrics that need one, all-MiniLM-L6-v2 (EvicPress);
// a cosine below 0 counts as 0. kInvalidArgument for an unknown name, and where the encoder is missing.
Result<std::shared_ptr<AnswerMetric>> make_answer_metric(std::string_view name,
                                                         std::unique_ptr<SentenceEncoder> encoder = nullptr);

}  // namespace shale
