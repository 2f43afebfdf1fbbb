#include "profile/metrics/text_metrics.h"

#include <algorithm>
#include <array>

namespace shale {
namespace {

bool in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte >= 0x80;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::span<const TextMetric> text_metrics() {
  static constexpr auto kMetrics = std::to_array<TextMetric>(
      {{"exact_match", exact_match}, {"f1", f1}, {"rouge_l", rouge_l}, {"codebleu", code_bleu}});
  return kMetrics;
}

double best_of(const TextMetric& metric, std::string_view answer, std::span<const std::string> references) {
  double best = 0;
  for (const std::string& reference : references) best = std::max(best, metric.compare(answer, reference));
  return best;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    if (in_word(c)) {
      if (!inside) words.emplace_back();
      words.back() += lower(c);
    }
    inside = in_word(c);
  }
  return words;
}

// Punctuation goes without parting words ("U.S." is "us"); only spaces part them.
std::vector<std::string> normalised_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (is_space(c)) {
      words.emplace_back();
    } else if (in_word(c)) {
      words.back() += lower(c);
    }
  }
  std::erase_if(words,
                [](const std::string& word) { return word.empty() || word == "a" || word == "an" || word == "the"; });
  return words;
}

}  // namespace shale
