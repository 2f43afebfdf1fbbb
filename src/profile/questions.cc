#include "profile/questions.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/parsing.h"
#include "core/utf8.h"
#include "profile/prompt.h"
#include "profile/teacher.h"

namespace shale {
namespace {

constexpr std::array<std::string_view, 6> kGenericQuestions = {
    "What is this text about?",
    "Who is addressed by this text?",
    "What does this text ask its reader to do?",
    "What are its most important points?",
    "How does this text begin?",
    "How does this text end?",
};
constexpr std::size_t kParagraphBytesMin = 120, kParagraphBytesMax = 1500;
constexpr std::size_t kWordsMin = 3, kWordsMax = 40;
constexpr std::uint32_t kTokensMax = 48;
constexpr std::string_view kRequest =
    "Write one short question that the text above answers. Write only the question, nothing else.";
constexpr std::string_view kBlanks = " \t\n\v\f\r";

// One space where there was any white space or control character.
std::string single_spaced(std::string_view text) {
  std::string out;
  for (const char c : trimmed(text, kBlanks)) {
    const bool space = static_cast<unsigned char>(c) <= ' ';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

std::size_t words(std::string_view single_spaced) {
  return single_spaced.empty() ? 0 : 1 + static_cast<std::size_t>(std::ranges::count(single_spaced, ' '));
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

bool starts_sentence(std::string_view text) {
  const auto letter = std::ranges::find_if(text, [](unsigned char c) { return std::isalpha(c) != 0; });
  return letter != text.end() && std::isupper(static_cast<unsigned char>(*letter)) != 0;
}

// Whether some longer word of the question stands in the text that it was asked about.
bool is_about(std::string_view question, std::string_view text) {
  constexpr std::array<std::string_view, 9> kEmpty = {"about", "above",  "answer", "following", "question",
                                                      "short", "should", "which",  "write"};
  const std::string haystack = folded(text);
  while (!question.empty()) {
    const std::size_t end = std::min(question.find(' '), question.size());
    const std::string word = folded(question.substr(0, end));
    if (word.size() >= 5 && std::ranges::find(kEmpty, word) == kEmpty.end() && haystack.contains(word)) return true;
    question.remove_prefix(std::min(end + 1, question.size()));
  }
  return false;
}

bool add_if_new(std::vector<std::string>& questions, std::string question) {
  const auto same = [&](const std::string& known) { return folded(known) == folded(question); };
  if (question.empty() || std::ranges::any_of(questions, same)) return false;
  questions.push_back(std::move(question));
  return true;
}

// What the model writes about each paragraph, as many together as the pool has room for.
Result<std::vector<std::string>> write_about(Engine& engine, std::span<const std::string_view> paragraphs) {
  Cache& cache = engine.cache();
  const PageShape shape = cache.pool().shape();
  const Sequence nothing(cache.pool());
  std::vector<std::string> written;
  for (std::size_t first = 0; first < paragraphs.size();) {
    std::vector<std::vector<Token>> prompts;
    std::uint32_t blocks = 0;
    for (std::size_t i = first; i < paragraphs.size(); ++i) {
      const std::string paragraph = single_spaced(utf8_front(paragraphs[i], kParagraphBytesMax));
      SHALE_ASSIGN(PromptParts prompt, make_prompt(engine.tokenizer(), paragraph, kRequest));
      prompt.context.insert(prompt.context.end(), prompt.question.begin(), prompt.question.end());
      blocks += shape.pages_for(static_cast<std::uint32_t>(prompt.context.size()) + kTokensMax) + 1;
      if (!cache.evict_until_free(blocks) && !prompts.empty()) break;
      prompts.push_back(std::move(prompt.context));
    }
    std::vector<Asked> asked;
    for (const auto& prompt : prompts) asked.push_back({&nothing, prompt});
    SHALE_ASSIGN(auto answers, greedy_answers(engine.model(), engine.tokenizer(), asked, kTokensMax));
    for (auto& answer : answers) {
      if (engine.tokenizer().ends_turn(answer.back())) answer.pop_back();
      written.push_back(engine.tokenizer().text(answer));
    }
    first += prompts.size();
  }
  return written;
}

}  // namespace

std::string first_question(std::string_view written) {
  const std::size_t end = written.find('?');
  if (end == std::string_view::npos) return {};
  std::string_view text = written.substr(0, end);
  // What stands before the question's own sentence or line: "Sure! Here is one:", "Question 1.", "- ", quotes.
  if (const std::size_t before = text.find_last_of(":!\""); before != std::string_view::npos) {
    text.remove_prefix(before + 1);
  }
  for (const std::string_view separator : {". ", "\n"}) {
    const std::size_t before = text.rfind(separator);
    if (before != std::string_view::npos && starts_sentence(text.substr(before))) text.remove_prefix(before + 1);
  }
  while (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) == 0) text.remove_prefix(1);
  std::string question = single_spaced(text);
  if (words(question) < kWordsMin || words(question) > kWordsMax) return {};
  question.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(question.front())));
  return question + "?";
}

std::vector<std::string_view> pick_paragraphs(std::string_view text, std::size_t count) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("\n\n"), text.size());
    const std::string_view paragraph = trimmed(text.substr(0, end), kBlanks);
    if (paragraph.size() >= kParagraphBytesMin) all.push_back(paragraph);
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  if (all.size() <= count) return all;
  std::vector<std::string_view> picked;
  for (std::size_t i = 0; i < count; ++i) picked.push_back(all[(2 * i + 1) * all.size() / (2 * count)]);
  return picked;
}

Result<WrittenQuestions> write_questions(Engine& engine, std::string_view context, std::uint32_t count) {
  const std::vector<std::string_view> paragraphs = pick_paragraphs(context, count);
  SHALE_ASSIGN(const std::vector<std::string> texts, write_about(engine, paragraphs));
  WrittenQuestions written;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string question = first_question(texts[i]);
    if (is_about(question, paragraphs[i])) written.by_model += add_if_new(written.questions, std::move(question));
  }
  for (std::string_view generic : kGenericQuestions) {
    if (written.questions.size() < count) add_if_new(written.questions, std::string(generic));
  }
  return written;
}

}  // namespace shale
