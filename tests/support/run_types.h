// Models that run in types that a test chooses, where they would measure which are fastest.
#pragma once

#include <filesystem>

#include "core/executor.h"
#include "model/model.h"
#include "model/model_fingerprint.h"
#include "model/weights/weight_record.h"

namespace shale::testing {

// Options with which the model of that file runs prompts, and `answers_together` answers and more, in one type and
// other answers in another, on so many threads. Leaves a record in the folder.
inline ModelOptions running_in(RunType prompts, RunType answers, std::uint32_t answers_together,
                               const std::filesystem::path& gguf, const std::filesystem::path& choices_folder,
                               std::uint32_t threads) {
  InlineExecutor executor;
  const Hash128 checkpoint = content_hash(*GgufFile::open(gguf).value(), executor);
  WeightRecordFile(choices_folder, checkpoint, threads).write({{prompts, 2}, {answers, 2}, answers_together});
  return {.choices_folder = choices_folder, .threads = threads};
}

}  // namespace shale::testing
