#include "metadata/context_kind.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "core/parsing.h"

namespace shale {
namespace {

constexpr std::array<std::string_view, kContextKinds> kNames = {"prose", "language", "code", "dialogue", "records"};

// A fifth to a third of running English.
constexpr std::array<std::string_view, 24> kEnglish = {"the", "of",   "and", "to", "in",  "a",    "is", "that",
                                                       "it",  "for",  "was", "on", "as",  "with", "be", "by",
                                                       "at",  "from", "or",  "an", "are", "his",  "he", "this"};

// Shares above which a text is of a kind; of running English prose all lie at less than a third of these.
constexpr double kCodeSigns = 0.05;       // of the bytes that are no white space: {}[]()<>=;_ and the like
constexpr double kSpokenLines = 0.4;      // of the lines: those that begin with who speaks
constexpr double kNumberedWords = 0.12;   // of the words: those with a digit
constexpr double kEnglishWordsMin = 0.1;  // of the words without a digit: fewer are another language
constexpr double kForeignBytes = 0.2;     // of the bytes: beyond ASCII, as other scripts are
constexpr std::size_t kLinesMin = 4, kWordsMin = 20;
constexpr std::size_t kNumberedMin = 6;  // of a text with fewer words: a sample of keys has few, all with digits
constexpr std::size_t kSpeakerBytesMax = 24;

bool is_letter(char c) { return static_cast<unsigned char>(c) >= 0x80 || std::isalpha(static_cast<unsigned char>(c)); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Features {
  std::size_t bytes = 0, signs = 0, foreign = 0;  // of what is no white space
  std::size_t words = 0, numbered = 0, english = 0;
  std::size_t lines = 0, spoken = 0;

  void add_word(std::string_view word);
  void add_line(std::string_view line);
};

// Whether somebody's name and a colon begin the line: one to three words, each with a capital.
bool is_spoken(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon > kSpeakerBytesMax || colon + 2 >= line.size() || line[colon + 1] != ' ') return false;
  std::string_view speaker = line.substr(0, colon);
  for (std::size_t words = 0; !speaker.empty(); ++words) {
    const std::size_t end = std::min(speaker.find(' '), speaker.size());
    if (words == 3 || end == 0) return false;
    const auto first = static_cast<unsigned char>(speaker.front());
    if (std::isupper(first) == 0 && first < 0x80) return false;
    if (!std::ranges::all_of(speaker.substr(0, end), [](char c) { return is_letter(c) || c == '.' || c == '-'; }))
      return false;
    speaker.remove_prefix(std::min(end + 1, speaker.size()));
  }
  return true;
}

void Features::add_word(std::string_view word) {
  ++words;
  if (std::ranges::any_of(word, is_digit)) {
    ++numbered;
    return;
  }
  std::string lower;
  for (const char c : word) {
    if (is_letter(c)) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  english += std::ranges::find(kEnglish, lower) != kEnglish.end();
}

void Features::add_line(std::string_view line) {
  ++lines;
  spoken += is_spoken(line);
  for (const char c : line) {
    constexpr std::string_view kSigns = "{}[]()<>=;_|&*/\\#$+@^~";
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    ++bytes;
    signs += kSigns.find(c) != std::string_view::npos;
    foreign += static_cast<unsigned char>(c) >= 0x80;
  }
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) add_word(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
}

double share(std::size_t part, std::size_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

}  // namespace

std::string_view name_of(ContextKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<ContextKind> kind_named(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ContextKind>(found - kNames.begin());
}

ContextKind kind_of(std::string_view text) {
  Features is;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const std::string_view line = trimmed(text.substr(0, end), " \t\v\f\r"); !line.empty()) is.add_line(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (is.lines >= kLinesMin && share(is.spoken, is.lines) > kSpokenLines) return ContextKind::kDialogue;
  if (share(is.foreign, is.bytes) > kForeignBytes) return ContextKind::kLanguage;
  if (share(is.signs, is.bytes) > kCodeSigns) return ContextKind::kCode;
  if (is.words < kWordsMin && is.numbered < kNumberedMin) return ContextKind::kProse;
  if (share(is.numbered, is.words) > kNumberedWords) return ContextKind::kRecords;
  const bool english = share(is.english, is.words - is.numbered) >= kEnglishWordsMin;
  return english ? ContextKind::kProse : ContextKind::kLanguage;
}

}  // namespace shale
