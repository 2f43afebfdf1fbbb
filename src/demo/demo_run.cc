#include "demo/demo_run.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "cache/planner_choice.h"
#include "core/interrupt.h"
#include "profile/prompt.h"

namespace shale {
namespace {

Result<Response> ask(DemoStack& stack, const DemoDocument& document, const std::string& question,
                     std::uint32_t tokens_max) {
  SHALE_ASSIGN(PromptParts parts, make_prompt(stack.engine().tokenizer(), document.text, question));
  Request request;
  request.spans = {{std::move(parts.context), true, document.name}, {std::move(parts.question), false, {}}};
  request.max_tokens = tokens_max;
  Response response = stack.engine().run(std::move(request));
  if (response.error) return std::unexpected(*response.error);
  return response;
}

// Uniform in [0, 1): the standard library's distributions differ between implementations.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::size_t index_below(std::mt19937_64& random, std::size_t end) {
  return static_cast<std::size_t>(uniform(random) * static_cast<double>(end));
}

}  // namespace

std::vector<DemoRequest> zipf_requests(std::span<const DemoDocument> documents, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::size_t> by_rank(documents.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  for (std::size_t i = documents.size(); i > 1; --i) std::swap(by_rank[i - 1], by_rank[index_below(random, i)]);
  std::vector<double> up_to;
  for (std::size_t rank = 1; rank <= documents.size(); ++rank) {
    up_to.push_back((up_to.empty() ? 0 : up_to.back()) + 1 / static_cast<double>(rank));
  }
  std::vector<DemoRequest> requests;
  while (requests.size() < count) {
    const auto rank = std::ranges::upper_bound(up_to, uniform(random) * up_to.back()) - up_to.begin();
    const std::size_t document = by_rank[static_cast<std::size_t>(rank)];
    requests.push_back({document, index_below(random, documents[document].requests.size())});
  }
  return requests;
}

Result<DemoForms> forms_of(std::span<const std::string> planners) {
  DemoForms forms{.methods = {}, .keeps = ProfileOptions().keeps};
  for (const std::string& planner : planners) {
    SHALE_ASSIGN(const PlannerChoice choice, parse_planner(planner));
    if (!choice.method || choice.method->is_full()) continue;
    forms.methods.push_back(choice.method->text());
    const double keep = std::min(choice.keep, choice.read_keep);
    if (std::ranges::find(forms.keeps, keep) == forms.keeps.end()) forms.keeps.insert(forms.keeps.begin(), keep);
  }
  return forms;
}

Result<IngestedDocument> ingest_document(DemoStack& stack, const DemoDocument& document, const DemoForms& forms,
                                         std::uint32_t answer_tokens,
                                         const std::function<void(std::size_t, std::size_t)>& progress) {
  IngestedDocument ingested;
  ingested.name = document.name;
  ingested.questions_by_model = document.questions_by_model;
  stack.empty_pool();
  SHALE_ASSIGN(const Response cold, ask(stack, document, document.requests.front(), 1));
  SHALE_ASSIGN(const Response warm, ask(stack, document, document.requests.back(), 1));
  ingested.recompute_s = cold.ttft_seconds;
  ingested.pool_s = warm.ttft_seconds;
  ProfileOptions options;
  for (const Method& method : stack.cache().methods()) {
    if (!method.is_full()) options.methods.push_back(method.text());
  }
  for (const std::string& method : forms.methods) {
    const bool known = std::ranges::find(options.methods, method) != options.methods.end();
    if (!known) options.methods.push_back(method);
  }
  options.keeps = forms.keeps;
  options.answer_tokens = answer_tokens;
  options.held_out = document.requests;
  options.label = document.name;
  options.stop = interrupted;
  SHALE_ASSIGN(ingested.profile, profile_context(stack.engine(), document.text, document.profiling, options, progress));
  ingested.tokens = ingested.profile.tokens;
  ingested.bytes = ingested.profile.rows.front().bytes;
  SHALE_TRY(stack.settle());
  return ingested;
}

Status store_document(DemoStack& stack, const DemoDocument& document) {
  stack.empty_pool();
  SHALE_TRY(ask(stack, document, document.requests.front(), 1));
  return stack.settle();
}

namespace {

// As it was measured when the document was ingested, on the request's question.
Result<double> agreement_of(const IngestedDocument& ingested, const SourceUsed& source, std::size_t question) {
  const auto row = std::ranges::find_if(ingested.profile.rows, [&](const ProfileRow& one) {
    return one.method == source.method && (one.keep == source.keep || one.method.is_full());
  });
  if (row == ingested.profile.rows.end()) {
    return fail(ErrorCode::kInternal, "{} was served as {} at keep {}, which nobody measured", ingested.name,
                source.method.text(), source.keep);
  }
  return row->held_out[question].agreement;
}

}  // namespace

Result<AnsweredRequest> answer_request(DemoStack& stack, const DemoDocument& document, const IngestedDocument& ingested,
                                       const DemoRequest& request, std::uint32_t answer_tokens) {
  stack.empty_pool();
  AnsweredRequest answered{.document = request.document, .question = request.question, .from = std::string(kComputed)};
  answered.at_s = stack.clock().now_s();
  SHALE_ASSIGN(const Response response, ask(stack, document, document.requests[request.question], answer_tokens));
  answered.ttft_s = response.ttft_seconds;
  std::ptrdiff_t slowest = -1;
  for (const SourceUsed& source : response.sources) {
    const auto tier = std::ranges::find(stack.tiers(), source.where, &DemoTier::name) - stack.tiers().begin();
    if (tier > slowest) answered.from = source.where;
    slowest = std::max(slowest, tier);
    answered.bytes += source.bytes;
    SHALE_ASSIGN(const double agreement, agreement_of(ingested, source, request.question));
    if (agreement > answered.agreement) continue;
    answered.agreement = agreement;
    answered.method = source.method;
    answered.keep = source.keep;
  }
  SHALE_TRY(stack.settle());
  return answered;
}

}  // namespace shale
