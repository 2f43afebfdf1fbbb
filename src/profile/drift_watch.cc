#include "profile/drift_watch.h"

#include <algorithm>
#include <utility>

#include "profile/profile.h"

namespace shale {
namespace {

constexpr std::size_t kQuestionTokensMax = 512;  // longer ones are no questions

}  // namespace

void DriftWatch::on_request(const Request& request) {
  if (request.segments.size() != 2 || !engine_.cache().catalogue()) return;
  const Segment &context = request.segments[0], &question = request.segments[1];
  if (!context.store || question.store || context.tokens.size() < options_.context_tokens_min ||
      question.tokens.size() > kQuestionTokensMax) {
    return;
  }
  const Hash128 run = engine_.cache().run_of(context.tokens);
  const auto known = std::ranges::find(contexts_, run, &Context::run);
  if (known == contexts_.end()) {
    contexts_.push_front({.run = run, .asked = {.tokens = context.tokens}, .label = context.label});
    if (contexts_.size() > options_.contexts_max) contexts_.pop_back();
  } else {
    contexts_.splice(contexts_.begin(), contexts_, known);
  }
  Context& now = contexts_.front();
  auto& questions = now.asked.questions;
  const bool again = std::erase(questions, question.tokens) > 0;
  questions.push_back(question.tokens);
  if (questions.size() > options_.check.questions_max) questions.erase(questions.begin());
  if (again) return;
  ++now.new_questions;
  ++stats_.questions;
}

bool DriftWatch::work(const Stop& stop) {
  const auto waits = [&](const Context& context) {
    return !context.unprofiled.empty() || context.new_questions >= options_.questions_between;
  };
  const auto next = std::ranges::find_if(contexts_, waits);
  if (next == contexts_.end()) return false;
  const Status done = next->unprofiled.empty() ? look(*next, stop) : profile(*next, stop);
  if (done) return true;
  if (done.error().code == ErrorCode::kCancelled) {
    ++stats_.interrupted;
  } else {  // would fail again, until something else was asked
    ++stats_.failed;
    next->new_questions = 0;
    next->unprofiled.clear();
  }
  return true;
}

Status DriftWatch::look(Context& context, const Stop& stop) {
  DriftOptions options = options_.check;
  options.stop = stop;
  const auto check = check_drift(engine_, context.asked, options);
  if (!check && check.error().code != ErrorCode::kNotFound) return std::unexpected(check.error());
  context.new_questions = 0;
  if (!check) {  // never profiled
    if (options_.profile_new) plan_profile(context);
    return {};
  }
  ++stats_.checks;
  stats_.check_seconds += check->seconds;
  if (check->drifted) {
    ++stats_.drifted;
    plan_profile(context);
  }
  return {};
}

void DriftWatch::plan_profile(Context& context) const {
  for (const Method& method : engine_.cache().methods()) {
    if (!method.is_full()) context.unprofiled.push_back(method.text());
  }
}

Status DriftWatch::profile(Context& context, const Stop& stop) {
  const ProfileOptions options{.methods = {context.unprofiled.back()},
                               .answer_tokens = options_.check.answer_tokens,
                               .label = context.label,
                               .stop = stop};
  SHALE_ASSIGN(const ContextProfile profile, profile_context(engine_, context.asked, options));
  stats_.profile_seconds += profile.seconds;
  context.unprofiled.pop_back();
  if (context.unprofiled.empty()) ++stats_.profiled;
  return {};
}

}  // namespace shale
