// What sort of text a context is, by cheap features of the text alone. Contexts of one kind lose alike when they are
// compressed, so that what was measured on some says more about others of their kind than about the rest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shale {

enum class ContextKind : std::uint8_t {
  kProse,     // English, and everything that is nothing else
  kLanguage,  // prose in another language
  kCode,      // programs, markup, configuration
  kDialogue,  // who said what, turn by turn
  kRecords,   // facts to be found: numbers, names of things, keys and values, line by line
};
inline constexpr std::size_t kContextKinds = 5;

// "prose", "language", "code", "dialogue", "records".
std::string_view name_of(ContextKind kind);
std::optional<ContextKind> kind_named(std::string_view name);

// UTF-8; takes about a nanosecond a byte, so hand over a sample of what is long. An empty text is prose.
ContextKind kind_of(std::string_view text);

}  // namespace shale
