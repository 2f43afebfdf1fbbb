#include "profile/teacher.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace shale {
namespace {

Status feed_questions(Model& model, std::span<Sequence> sequences, std::span<const Reference> references,
                      const Stop& stop) {
  std::vector<Feed> feeds;
  for (std::size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&sequences[i], references[i].question});
  return feed(model, feeds, {}, stop);
}

std::vector<Sequence> forks(const Sequence& context, std::size_t count) {
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < count; ++i) sequences.push_back(context.fork());
  return sequences;
}

}  // namespace

// Greedy, one token a step for every answer that goes on.
Result<std::vector<std::vector<Token>>> greedy_answers(Model& model, const Tokenizer& tokenizer,
                                                       std::span<const Asked> asked, std::uint32_t answer_tokens,
                                                       const Stop& stop) {
  std::vector<Sequence> sequences;
  std::vector<Feed> feeds;
  for (const Asked& one : asked) sequences.push_back(one.context->fork());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    feeds.push_back({&sequences[i], asked[i].question.first(asked[i].question.size() - 1)});
  }
  SHALE_TRY(feed(model, feeds, {}, stop));
  std::vector<std::vector<Token>> answers(asked.size());
  std::vector<std::size_t> going(asked.size());
  std::iota(going.begin(), going.end(), std::size_t{0});
  while (!going.empty()) {
    feeds.clear();
    for (const std::size_t i : going) {
      const std::span<const Token> before = answers[i].empty() ? asked[i].question : std::span(answers[i]);
      feeds.push_back({&sequences[i], before.last(1)});
    }
    std::vector<Token> drawn(going.size());
    const auto draw = [&](std::size_t at, std::size_t, std::span<const float> logits) { drawn[at] = arg_max(logits); };
    SHALE_TRY(feed(model, feeds, draw, stop));
    for (std::size_t at = 0; at < going.size(); ++at) answers[going[at]].push_back(drawn[at]);
    std::erase_if(going, [&](std::size_t i) {
      return answers[i].size() == answer_tokens || tokenizer.ends_turn(answers[i].back());
    });
  }
  return answers;
}

Result<std::vector<Reference>> answer_questions(Model& model, const Tokenizer& tokenizer, const Sequence& context,
                                                std::span<const std::vector<Token>> questions,
                                                std::uint32_t answer_tokens, const Stop& stop) {
  std::vector<Asked> asked;
  for (const auto& question : questions) asked.push_back({&context, question});
  SHALE_ASSIGN(const auto answers, greedy_answers(model, tokenizer, asked, answer_tokens, stop));
  std::vector<Reference> references(questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    references[i].question.assign(questions[i].begin(), questions[i].end() - 1);
    references[i].answer = answers[i];
    references[i].fed = {questions[i].back()};
    references[i].fed.insert(references[i].fed.end(), answers[i].begin(), answers[i].end() - 1);
  }
  // The same tokens again in prefill's shape, as compressed caches will be asked.
  std::vector<Sequence> sequences = forks(context, references.size());
  SHALE_TRY(feed_questions(model, sequences, references, stop));
  std::vector<Feed> feeds;
  for (std::size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&sequences[i], references[i].fed});
  const std::size_t vocabulary = model.info().vocabulary;
  const auto predict = [&](std::size_t at, std::size_t, std::span<const float> rows) {
    Reference& reference = references[at];
    reference.logits.insert(reference.logits.end(), rows.begin(), rows.end());
    for (std::size_t row = 0; row < rows.size(); row += vocabulary) {
      reference.predicted.push_back(arg_max(rows.subspan(row, vocabulary)));
    }
  };
  SHALE_TRY(feed(model, feeds, predict, stop));
  return references;
}

void ForcedBatch::add(const Sequence& context, std::span<Divergence> results) {
  for (std::size_t i = 0; i < references_.size(); ++i) {
    results[i] = {};
    asks_.push_back({context.fork(), &references_[i], &results[i]});
    tokens_ += references_[i].fed.size();
  }
}

std::uint32_t ForcedBatch::blocks_needed() const {
  const PageShape shape = model_.page_shape();
  std::uint32_t blocks = 0;
  for (const Reference& reference : references_) {
    blocks += shape.pages_for(static_cast<std::uint32_t>(reference.question.size() + reference.fed.size())) + 1;
  }
  return blocks * static_cast<std::uint32_t>(asks_.size() / references_.size() + 1);
}

Status ForcedBatch::run() {
  std::vector<Ask> asks = std::exchange(asks_, {});
  tokens_ = 0;
  std::vector<Feed> questions, answers;
  for (Ask& ask : asks) {
    questions.push_back({&ask.sequence, ask.reference->question});
    answers.push_back({&ask.sequence, ask.reference->fed});
  }
  SHALE_TRY(feed(model_, questions, {}, stop_));
  const std::size_t vocabulary = model_.info().vocabulary;
  const auto compare = [&](std::size_t at, std::size_t first, std::span<const float> rows) {
    const Reference& reference = *asks[at].reference;
    std::vector<Divergence> each(rows.size() / vocabulary);
    model_.executor().parallel_for(each.size(), [&](std::size_t row) {
      const std::size_t position = first + row;
      each[row] = divergence(std::span(reference.logits).subspan(position * vocabulary, vocabulary),
                             rows.subspan(row * vocabulary, vocabulary),
                             std::span(reference.predicted).subspan(position, 1), vocabulary);
    });
    for (const Divergence& one : each) {
      asks[at].result->agreement += one.agreement;
      asks[at].result->kl += one.kl;
    }
  };
  SHALE_TRY(feed(model_, answers, compare, stop_));
  for (const Ask& ask : asks) {
    const auto positions = static_cast<double>(ask.reference->fed.size());
    *ask.result = {ask.result->agreement / positions, ask.result->kl / positions};
  }
  return {};
}

}  // namespace shale
