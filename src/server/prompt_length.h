// Prompts that are too long for the model, found out before they cost: to tokenize a text takes far longer than to read
// it, and one word of a megabyte longer than its length says.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/model.h"

namespace shale {

// What makes a prompt of these texts (UTF-8) too long for a context of so many tokens ("70000 bytes"), its answer
// included, where that shows without tokenizing them whole; nothing otherwise. `special`: as they will be tokenized.
// Reads no more than what fills the context, in pieces; where they meet, it looks at what the cut makes different. Up
// to 64 KiB it reads nothing: whoever tokenizes them counts as soon.
std::optional<std::string> excess_of(std::span<const std::string_view> texts, bool special, std::size_t context_tokens,
                                     const Tokenizer& tokenizer);

}  // namespace shale
