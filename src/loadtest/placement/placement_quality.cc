#include "loadtest/placement/placement_quality.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/interrupt.h"
#include "engine/chat_prompt.h"
#include "profile/sweep.h"

namespace shale {
namespace {

// What is to be measured of one context.
struct Wanted {
  std::set<std::size_t> questions;
  std::set<std::pair<std::string, double>> forms;  // method and keep
};

std::map<std::size_t, Wanted> wanted_of(const PlacementFile& file) {
  std::map<std::size_t, Wanted> wanted;
  for (const PlacementCell& cell : file.cells()) {
    for (const PlacementAnswer& answer : cell.answers) {
      const auto lacks = [&](const ServedForm& form) {
        return !file.agreement().contains({answer.context, answer.question, form.method, form.keep});
      };
      const bool referenced = file.references().contains({answer.context, answer.question});
      if (referenced && std::ranges::none_of(answer.forms, lacks)) continue;
      Wanted& one = wanted[answer.context];
      one.questions.insert(answer.question);
      for (const ServedForm& form : answer.forms) one.forms.emplace(form.method, form.keep);
    }
  }
  return wanted;
}

// As the server had it: the context as system message.
Result<AskedContext> asked_of(const Tokenizer& tokenizer, const LoadContext& context,
                              const std::set<std::size_t>& questions) {
  AskedContext asked;
  asked.text = text_of(context, static_cast<std::uint32_t>(context.tokens.size()), tokenizer);
  for (const std::size_t question : questions) {
    const std::vector<ChatMessage> chat = {{.role = "system", .content = asked.text},
                                           {.role = "user", .content = context.questions[question]}};
    SHALE_ASSIGN(auto spans, chat_prompt(tokenizer, chat));
    asked.tokens = std::move(spans.front().tokens);
    asked.questions.push_back(std::move(spans.back().tokens));
  }
  return asked;
}

}  // namespace

Status measure_quality(Engine& engine, std::span<const LoadContext> contexts, std::uint32_t answer_tokens,
                       PlacementFile& file, const std::function<void(std::size_t, std::size_t)>& progress) {
  const std::map<std::size_t, Wanted> wanted = wanted_of(file);
  std::size_t done = 0;
  for (const auto& [index, of] : wanted) {
    progress(done++, wanted.size());
    SHALE_TRY(check_interrupt());
    SweepOptions options{.answer_tokens = answer_tokens, .stop = interrupted};
    for (const auto& [text, keep] : of.forms) {
      SHALE_ASSIGN(const Method method, Method::parse(text));
      options.configurations.push_back({.method = method, .keep = keep});
    }
    std::ranges::stable_sort(options.configurations, {},
                             [](const SweepConfiguration& one) { return one.method.scorer; });
    SHALE_ASSIGN(const AskedContext asked, asked_of(engine.tokenizer(), contexts[index], of.questions));
    SHALE_ASSIGN(const ContextSweep sweep, sweep_context(engine, asked, options));
    const std::vector<std::size_t> questions(of.questions.begin(), of.questions.end());
    for (std::size_t i = 0; i < questions.size(); ++i) {
      SHALE_TRY(file.add_reference(index, questions[i], sweep.answers[i]));
    }
    for (const SweepRow& row : sweep.rows) {
      const FormKey key{.context = index,
                        .question = questions[row.question],
                        .method = row.configuration.method.text(),
                        .keep = row.configuration.keep};
      SHALE_TRY(file.add(key, row.forced.agreement));
    }
  }
  return {};
}

double agreement_of(const PlacementAnswer& answer, const PlacementFile& file) {
  double least = 1;
  for (const ServedForm& form : answer.forms) {
    least = std::min(least, file.agreement().at({answer.context, answer.question, form.method, form.keep}));
  }
  return least;
}

}  // namespace shale
