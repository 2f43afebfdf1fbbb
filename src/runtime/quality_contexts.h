// Contexts with questions and accepted answers, as `shale quality` reads them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace shale {

struct QualityContext {
  std::string dataset, id, text;
  std::vector<std::string> questions;
  std::vector<std::vector<std::string>> answers;  // accepted ones of each question; may be empty
};

// JSON lines of {"id", "dataset", "context", "questions": [...], "answers": [[...], ...]}; other fields are passed
// over, "dataset" defaults to the file's name and "answers" to none. The first `contexts_max` (0: all), with their
// first `questions_max` questions (0: all). Errors name file and line.
Result<std::vector<QualityContext>> read_quality_contexts(const std::filesystem::path& file, std::size_t contexts_max,
                                                          std::size_t questions_max);
// Rows name a question by dataset, id and number. An error where two questions of other texts have the same.
Status check_names(std::span<const QualityContext> contexts);

}  // namespace shale
