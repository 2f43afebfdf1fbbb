// Which context a QualityWatch looks at next, and which it profiles.
#include <algorithm>
#include <cmath>
#include <functional>

#include "codec/extent.h"
#include "codec/views/sequence_view.h"
#include "engine/storing.h"
#include "placement/value_of_knowing.h"
#include "profile/watch/quality_watch.h"

namespace shale {
namespace {

constexpr double kNothingKnown = 0.5;         // a quality of which nothing is known, and its spread
constexpr std::size_t kLookedAtClosely = 64;  // contexts: what is known of each takes some time to find
constexpr double kNotWorthForS = 10;          // then more may be known of others

}  // namespace

// Profiles are checked once enough was asked or answered; of those that were never made only what was expected of
// answers can be.
QualityWatch::Context* QualityWatch::context_to_check() {
  for (Context& context : contexts_) {
    if (context.new_answers >= options_.questions_between) return &context;
    if (context.new_questions < options_.questions_between) continue;
    if (is_profiled(context)) return &context;
    if (!options_.profile_new) context.new_questions = 0;
  }
  return nullptr;
}

QualityWatch::Context* QualityWatch::context_to_profile() {
  if (!options_.profile_new) return nullptr;
  struct Choice {
    double worth;
    Context* context;
  };
  std::vector<Choice> choices;
  const double now_s = engine_.cache().clock().now_s();
  for (Context& context : contexts_) {
    if (now_s < context.not_worth_until_s || !has_outgrown_profile(context)) continue;
    choices.push_back({use(context), &context});
  }
  const auto most = choices.begin() + static_cast<std::ptrdiff_t>(std::min(choices.size(), kLookedAtClosely));
  std::ranges::partial_sort(choices, most, std::greater(), &Choice::worth);
  choices.erase(most, choices.end());
  std::erase_if(choices, [&](const Choice& choice) { return !is_worth_profiling(*choice.context); });
  for (auto& [worth, context] : choices) worth *= gain(*context);
  const auto best = std::ranges::max_element(choices, {}, &Choice::worth);
  return best == choices.end() ? nullptr : best->context;
}

// By some method at least.
bool QualityWatch::is_profiled(const Context& context) const {
  Cache& cache = engine_.cache();
  return std::ranges::any_of(cache.methods(), [&](const Method& method) {
    return cache.metadata_store()->questions_measured(context.run, method) > 0;
  });
}

// By every method; 0: by not all of them.
std::uint32_t QualityWatch::questions_of_profile(const Context& context) const {
  Cache& cache = engine_.cache();
  std::uint32_t least = options_.check.questions_max;
  for (const Method& method : cache.methods()) {
    if (!method.is_full()) least = std::min(least, cache.metadata_store()->questions_measured(context.run, method));
  }
  return least;
}

// Twice as many questions are known as there were for its profile, or for the last try to make one; or all that are
// kept.
bool QualityWatch::has_outgrown_profile(Context& context) {
  const auto outgrown = [&] {
    const std::size_t asked = context.asked.questions.size();
    return asked > context.tried_on && asked >= std::min(2 * context.tried_on, options_.check.questions_max);
  };
  if (!outgrown()) return false;
  context.tried_on = std::max(context.tried_on, questions_of_profile(context));  // by an earlier process
  return outgrown();
}

// How often it is asked, times how much it takes of the tiers.
double QualityWatch::use(const Context& context) const {
  return context.accesses.value(engine_.cache().clock().now_s()) * static_cast<double>(context.asked.tokens.size());
}

// How much less the qualities of all that the context may become would spread, on average (quality_table.h).
double QualityWatch::gain(const Context& context) const {
  Cache& cache = engine_.cache();
  double spread = 0;
  std::size_t configurations = 0;
  for (const Method& method : cache.methods()) {
    for (const double keep : kKeepGrid) {
      if (method.is_full() || (method.scorer.empty() && keep != 1)) continue;
      const auto known = cache.metadata_store()->quality_for(context.run, method, keep);
      spread += known ? known->spread : kNothingKnown;
      ++configurations;
    }
  }
  const auto now = static_cast<double>(questions_of_profile(context));
  const auto then = static_cast<double>(context.asked.questions.size());
  return spread / static_cast<double>(configurations) *
         (1 - std::sqrt((now + kPriorQuestions) / (then + kPriorQuestions)));
}

// A form that nothing is known of may be anything.
bool QualityWatch::is_worth_profiling(Context& context) {
  Cache& cache = engine_.cache();
  const std::span<const Token> tokens = context.asked.tokens;
  const auto kind = cache.metadata_store()->kind(context.run).value_or(kind_of(engine_.tokenizer(), tokens));
  if (profiled_of_kind_[static_cast<std::size_t>(kind)] < options_.of_a_kind_min) return true;
  double read_bytes_per_s = cache.tiers().back()->speed().read_bytes_per_s;
  std::uint32_t tier = 0;
  for (const StoreExtent& extent : cache.store().inspect(cache.keys_of(tokens))) {
    if (extent.tiers.empty() || extent.tiers.front() < tier) continue;
    tier = extent.tiers.front();
    read_bytes_per_s = cache.tiers()[tier]->speed().read_bytes_per_s;
  }
  const double now = questions_of_profile(context), then = static_cast<double>(context.asked.questions.size());
  const double learnt_share = std::sqrt(std::max(0.0, then - now) / (then + kPriorQuestions));
  std::vector<UncertainForm> forms;
  for (const Method& method : cache.methods()) {
    for (const double keep : kKeepGrid) {
      if (keep != 1 && (method.is_full() || method.scorer.empty())) continue;
      const auto known = cache.metadata_store()->quality_for(context.run, method, keep);
      const auto bytes =
          extent_bytes(geometry_of(cache.pool().shape()), method, cache.whole_blocks(tokens.size()), keep);
      if (!bytes) continue;
      forms.push_back({.quality = known ? known->expected : kNothingKnown,
                       .learnt = (known ? known->spread : kNothingKnown) * learnt_share,
                       .load_s = static_cast<double>(*bytes) / read_bytes_per_s});
    }
  }
  const double value = value_of_knowing(forms, cache.options().alpha, cache.options().quality_floor);
  if (value >= options_.worth_s_min) return true;
  context.not_worth_until_s = cache.clock().now_s() + kNotWorthForS;
  ++stats_.not_worth;
  return false;
}

}  // namespace shale
