// Questions about a context that nobody asked yet, written by the model itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace shale {

struct WrittenQuestions {
  std::vector<std::string> questions;  // all different
  std::uint32_t by_model = 0;          // the first so many; the rest are generic ones that fit any text
};

// Asks the model for one question about each of `count` different paragraphs, spread over the context. Where it writes
// nothing usable, or nothing that has a word in common with the paragraph, one of six generic questions stands in.
// Deterministic. Owns the engine meanwhile. kFull where the pool has no room for a paragraph.
Result<WrittenQuestions> write_questions(Engine& engine, std::string_view context, std::uint32_t count);

// What a model wrote, cut to its first question: quotes, list marks, labels and line breaks removed, ending in a
// question mark. Empty when there is none of three to forty words.
std::string first_question(std::string_view written);

// `count` paragraphs of at least a sentence, spread evenly, in order; fewer where the text has fewer. Views into
// `text`.
std::vector<std::string_view> pick_paragraphs(std::string_view text, std::size_t count);

}  // namespace shale
