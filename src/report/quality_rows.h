// What `shale quality` measures, a row a context, question and configuration; kept as JSON lines, so that a sweep goes
// on where it was stopped and reports are made of any files of rows.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "report/output.h"

namespace shale {

struct QualityRow {
  std::string model, dataset, context;
  std::string kind = {};  // of context (metadata/context_kind.h); empty where it was not looked at
  std::size_t question = 0;
  bool question_seen = false;  // while the context was compressed
  // What it was measured with and of: the same question under another setting is another measurement, and of another
  // text another question. Zeros and empty in rows from before they were kept.
  std::uint32_t answer_tokens = 0, window = 0, context_tokens_max = 0;  // SweepOptions
  std::string texts = {};                                               // a hash of the context's and the question's
  std::string method;
  double keep = 1, bits = 16;
  std::uint64_t tokens = 0, tokens_cut = 0, bytes = 0, full_bytes = 0;
  double agreement = 0, kl = 0;  // teacher-forced, against the full cache
  // Metrics of generated answers: "f1", "rouge_l", "codebleu", "cosine" against the full cache's answer, "gold_f1",
  // "gold_exact_match" against the accepted ones. Empty where none was.
  std::map<std::string, double> answer;
  std::string text;  // the generated answer
  // Where agreement was predicted: "mass", "error" and "probe" (profile/sweep.h). Empty where not.
  std::map<std::string, double> predicted;
  // Seconds that predicting and measuring took for all configurations of the context: "measured", "signals", "probe".
  std::map<std::string, double> seconds;
};

Json to_json(const QualityRow& row);
// Its line in a file, with the end of the line. Bytes of the answer that are not UTF-8 become U+FFFD.
std::string line_of(const QualityRow& row);
// The rows of a file; none where there is no file. kCorrupt with file and line for anything else than rows. A last line
// without its end, as a killed process leaves it, is left out.
Result<std::vector<QualityRow>> read_quality_rows(const std::filesystem::path& file);
// Cuts such a line off, so that further rows can stand behind the others; makes the file where there is none.
Status drop_cut_row(const std::filesystem::path& file);

}  // namespace shale
