#include "profile/prior.h"

#include <algorithm>
#include <utility>

#include "profile/prior_texts.h"

namespace shale {

Result<AskedContext> prior_text(const Tokenizer& tokenizer, std::size_t index) {
  const PriorText& text = prior_texts()[index];
  const std::vector<std::string> questions(text.questions.begin(), text.questions.end());
  return ask(tokenizer, text.text, questions);
}

void note_prior_texts(const Tokenizer& tokenizer, Cache& cache) {
  for (std::size_t i = 0; cache.metadata_store() && i < prior_texts().size(); ++i) {
    const auto text = prior_text(tokenizer, i);
    if (text) cache.metadata_store()->note_shipped(cache.run_of(text->tokens));
  }
}

PriorMeasurement::PriorMeasurement(Engine& engine, PriorOptions options)
    : engine_(engine), options_(std::move(options)) {
  if (!options_.methods.empty()) return;
  for (const Method& method : engine.cache().methods()) {
    if (!method.is_full()) options_.methods.push_back(method.text());
  }
}

Result<std::vector<std::string>> PriorMeasurement::lacking(const AskedContext& text) const {
  Cache& cache = engine_.cache();
  SHALE_ASSIGN(const auto rows, cache.metadata_store()->qualities(cache.run_of(text.tokens)));
  std::vector<std::string> methods = options_.methods;
  std::erase_if(methods, [&](const std::string& method) {
    return std::ranges::any_of(rows, [&](const QualityRecord& row) { return row.method.text() == method; });
  });
  return methods;
}

// Begins with the text; nothing where the metadata store lacks nothing of it.
Status PriorMeasurement::begin(std::size_t index) {
  SHALE_ASSIGN(AskedContext text, prior_text(engine_.tokenizer(), index));
  SHALE_ASSIGN(std::vector<std::string> methods, lacking(text));
  if (methods.empty()) return {};
  const std::size_t questions = text.questions.size();
  ProfileOptions options{.methods = std::move(methods),
                         .full = false,
                         .answer_tokens = options_.answer_tokens,
                         .store = false,
                         .record_later = true};
  SHALE_ASSIGN(profiling_, ContextProfiling::begin(engine_, std::move(text), questions, std::move(options)));
  return {};
}

Result<bool> PriorMeasurement::step(const Stop& stop) {
  while (!profiling_) {
    if (next_ == prior_texts().size()) return false;
    SHALE_TRY(begin(next_++));
  }
  SHALE_ASSIGN(const bool more, profiling_->step(stop));
  if (!more) profiling_.reset();
  measured_ += !more;
  return true;
}

std::size_t PriorMeasurement::left() const { return prior_texts().size() - next_ + profiling_.has_value(); }

void PriorMeasurement::let_go() {
  if (profiling_) profiling_->let_go();
}

}  // namespace shale
