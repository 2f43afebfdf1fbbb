// What quality is measured in.
#pragma once

#include <string_view>

#include "core/error.h"

namespace shale {

// The metric where none is chosen: the share of the full cache's greedy answer that is still the arg max over the
// compressed cache, token by token. It is found by feeding that answer and needs none of its own.
inline constexpr std::string_view kAgreement = "agreement";

// Any other: how much an answer over a compressed cache is worth beside the full cache's answer, as texts.
class AnswerMetric {
 public:
  virtual ~AnswerMetric() = default;
  // As users and the metadata store write it; lives as long as the program.
  virtual std::string_view name() const = 0;
  // A score in [0, 1]; 1: as good as the same. Not thread-safe.
  virtual Result<double> compare(std::string_view answer, std::string_view reference) = 0;
};

}  // namespace shale
