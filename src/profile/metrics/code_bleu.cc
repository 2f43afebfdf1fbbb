#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>

#include "profile/metrics/code_match.h"
#include "profile/metrics/text_metrics.h"

namespace shale {
namespace {

constexpr std::size_t kGrams = 4;
constexpr double kKeywordWeight = 5;

// Keywords of C, C++, Java, JavaScript, Go, Rust and Python.
constexpr auto kKeywords = std::to_array<std::string_view>(
    {"and",    "as",       "async",   "await",   "bool",      "break",     "case",   "catch",  "char",      "class",
     "const",  "continue", "def",     "default", "delete",    "do",        "double", "elif",   "else",      "enum",
     "except", "export",   "extends", "false",   "final",     "finally",   "float",  "fn",     "for",       "from",
     "func",   "function", "global",  "if",      "impl",      "import",    "in",     "int",    "interface", "is",
     "lambda", "let",      "long",    "match",   "mod",       "namespace", "new",    "none",   "not",       "null",
     "or",     "package",  "pass",    "private", "protected", "public",    "raise",  "return", "self",      "short",
     "static", "string",   "struct",  "super",   "switch",    "template",  "this",   "throw",  "trait",     "true",
     "try",    "type",     "typedef", "union",   "unsigned",  "use",       "using",  "var",    "virtual",   "void",
     "while",  "with",     "yield"});
static_assert(std::ranges::is_sorted(kKeywords));

bool is_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) || c == '_' || byte >= 0x80;
}

std::vector<std::string> code_tokens(std::string_view text) {
  std::vector<std::string> tokens;
  bool inside = false;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space && (!inside || !is_word(c))) tokens.emplace_back();
    if (!space) tokens.back() += c;
    inside = !space && is_word(c);
  }
  return tokens;
}

using Counts = std::map<std::vector<std::string>, double>;

Counts grams_of(const std::vector<std::string>& tokens, std::size_t length) {
  Counts counts;
  for (std::size_t i = 0; i + length <= tokens.size(); ++i) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i);
    counts[{first, first + static_cast<std::ptrdiff_t>(length)}] += 1;
  }
  return counts;
}

double weight_of(const std::vector<std::string>& gram, bool weighted) {
  return weighted && gram.size() == 1 && std::ranges::binary_search(kKeywords, gram[0]) ? kKeywordWeight : 1;
}

double bleu(const std::vector<std::string>& ours, const std::vector<std::string>& theirs, bool weighted) {
  double log_precision = 0;
  for (std::size_t length = 1; length <= kGrams; ++length) {
    const Counts reference = grams_of(theirs, length);
    const double smoothing = length == 1 ? 0 : 1;
    double matched = smoothing, all = smoothing;
    for (const auto& [gram, count] : grams_of(ours, length)) {
      const auto found = reference.find(gram);
      const double weight = weight_of(gram, weighted);
      matched += weight * std::min(count, found == reference.end() ? 0 : found->second);
      all += weight * count;
    }
    if (matched == 0) return 0;
    log_precision += std::log(matched / all) / kGrams;
  }
  const double lengths = static_cast<double>(theirs.size()) / static_cast<double>(ours.size());
  return std::exp(log_precision + std::min(0.0, 1 - lengths));
}

}  // namespace

double code_bleu(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> ours = code_tokens(answer), theirs = code_tokens(reference);
  if (ours.empty() || theirs.empty()) return ours.empty() && theirs.empty() ? 1 : 0;
  std::vector<double> parts = {bleu(ours, theirs, false), bleu(ours, theirs, true)};
  if (const auto wanted = CodeTree::of_code(reference)) {
    const CodeTree given = CodeTree::read(answer, wanted->language());
    parts.push_back(syntax_match(given, *wanted));
    if (const auto flow = data_flow_match(given, *wanted)) parts.push_back(*flow);
  }
  return std::accumulate(parts.begin(), parts.end(), 0.0) / static_cast<double>(parts.size());
}

}  // namespace shale
