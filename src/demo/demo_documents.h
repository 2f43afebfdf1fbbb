// What the demo is about: documents cut to fit, and the questions asked of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"

namespace shale {

struct DemoDocument {
  std::string name;
  std::string text;
  std::vector<std::string> profiling;               // questions to learn from
  std::vector<std::string> requests;                // questions of the workload
  std::optional<std::uint32_t> questions_by_model;  // where questions had to be written; the rest are generic
  std::uint32_t tokens = 0;                         // of the text alone
};

// Eight licence texts of this machine, every other one half as long, and four texts of other kinds that ship with
// Shale: code, dialogue, records, another language. kNotFound with what to do where there are fewer licences.
Result<std::vector<DemoDocument>> sample_documents(const Tokenizer& tokenizer, std::uint32_t tokens_max);
// The user's own files, without questions yet.
Result<std::vector<DemoDocument>> user_documents(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                                                 std::uint32_t tokens_max);
// Has the model write questions about a document without any: half to learn from, half for the workload.
Status ask_for_questions(Engine& engine, DemoDocument& document);

// The longest beginning of at most `tokens_max` tokens that ends with a paragraph (an empty line), or with a line where
// even the first paragraph is longer.
std::string_view cut_to_fit(const Tokenizer& tokenizer, std::string_view text, std::uint32_t tokens_max);

}  // namespace shale
