#include "loadtest/serve/serve_load.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "core/utf8.h"
#include "runtime/quality_contexts.h"
#include "trace/arrivals.h"
#include "trace/trace_reader.h"
#include "trace/zipf.h"

namespace shale {
namespace {

constexpr std::uint64_t kLaterTurns = 0x9e3779b97f4a7c15;  // tells the seed of their draws from others

constexpr std::array<std::string_view, 6> kFollowUps = {
    "Say more about that.",     "Why is that?",
    "What follows from that?",  "Is there an exception to that?",
    "Say that in fewer words.", "What else matters here?",
};

// Of the last chat of `load`, whose context has so many questions.
void add_later_turns(std::vector<LoadRequest>& load, std::size_t questions, const ServeLoadOptions& options,
                     Random& random) {
  LoadRequest next = load.back();
  const std::size_t first = next.question, follow_up = random.below(kFollowUps.size());
  next.at_s = 0;
  for (next.turn = 2; next.turn <= options.turns && load.size() < options.requests; ++next.turn) {
    const std::size_t asked = next.turn - 1;
    next.question = asked < questions ? (first + asked) % questions
                                      : questions + (follow_up + asked - questions) % kFollowUps.size();
    next.pause_s = random.exponential(options.turn_gap_s);
    load.push_back(next);
  }
}

}  // namespace

Result<std::vector<LoadContext>> read_load_contexts(std::span<const std::string> files, std::size_t contexts_max,
                                                    std::uint32_t context_tokens, const Tokenizer& tokenizer) {
  std::vector<LoadContext> contexts;
  for (const std::string& file : files) {
    SHALE_ASSIGN(auto found, read_quality_contexts(file, contexts_max, 0));
    for (QualityContext& context : found) {
      LoadContext& added = contexts.emplace_back();
      added.id = std::move(context.id);
      added.questions = std::move(context.questions);
      added.dataset = std::move(context.dataset);
      added.answers = std::move(context.answers);
      added.tokens = tokenizer.tokenize(context.text, false);
      if (context_tokens > 0 && added.tokens.size() > context_tokens) added.tokens.resize(context_tokens);
    }
  }
  if (contexts.empty())
    return fail(ErrorCode::kInvalidArgument,
                "the files of --contexts hold no context: write JSON lines with id, context and questions");
  return contexts;
}

Hash128 hash_of(std::span<const LoadContext> contexts) {
  Hasher hasher;
  for (const LoadContext& context : contexts) {
    hasher.add(context.id).add(std::as_bytes(std::span(context.tokens))).add(std::uint64_t{context.tokens.size()});
    hasher.add(context.opening).add(context.dataset).add(std::uint64_t{context.questions.size()});
    for (const std::string& question : context.questions) hasher.add(question);
    for (const std::vector<std::string>& accepted : context.answers) {
      hasher.add(std::uint64_t{accepted.size()});
      for (const std::string& answer : accepted) hasher.add(answer);
    }
  }
  return hasher.finish();
}

std::string_view question_of(const LoadContext& context, std::size_t question) {
  if (question == LoadRequest::kOpening) return context.opening;
  const std::size_t own = context.questions.size();
  return question < own ? std::string_view(context.questions[question]) : kFollowUps.at(question - own);
}

std::vector<std::string> dialogue_of(const LoadContext& context, std::span<const LoadRequest> turns,
                                     const std::vector<std::string>& answers) {
  std::vector<std::string> said;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    said.emplace_back(question_of(context, turns[i].question));
    if (i < answers.size()) said.push_back(answers[i]);
  }
  return said;
}

void hold_back_opening(LoadContext& context) {
  if (context.questions.size() < 2) {
    context.opening = "What is this text about?";
    return;
  }
  context.opening = std::move(context.questions.front());
  context.questions.erase(context.questions.begin());
  if (!context.answers.empty()) context.answers.erase(context.answers.begin());
}

std::vector<LoadRequest> opening_load(std::span<const LoadContext> contexts) {
  std::vector<LoadRequest> load(contexts.size());
  for (std::size_t i = 0; i < load.size(); ++i) {
    load[i].chat = i;
    load[i].context = i;
    load[i].question = LoadRequest::kOpening;
    load[i].context_tokens = static_cast<std::uint32_t>(contexts[i].tokens.size());
  }
  return load;
}

std::string text_of(const LoadContext& context, std::uint32_t tokens, const Tokenizer& tokenizer) {
  const std::span all(context.tokens);
  std::string text = tokenizer.text(all.first(std::min<std::size_t>(tokens, all.size())));
  text.resize(std::min(text.size(), find_invalid_utf8(text)));
  return text;
}

Result<std::vector<TraceArrival>> read_arrivals(const std::filesystem::path& trace, std::size_t requests) {
  SHALE_ASSIGN(const auto reader, open_trace(trace));
  std::vector<TraceArrival> arrivals;
  RawRequest request;
  while (arrivals.size() < requests) {
    SHALE_ASSIGN(const bool more, reader->next(request));
    if (!more) {
      return fail(ErrorCode::kInvalidArgument, "{} has {} requests, not {}: ask for fewer with --requests",
                  trace.string(), arrivals.size(), requests);
    }
    arrivals.push_back({request.arrival_s, request.input_tokens, request.output_tokens});
  }
  if (arrivals.size() < 2 || arrivals.back().at_s <= arrivals.front().at_s) {
    return fail(ErrorCode::kInvalidArgument,
                "the first {} requests of {} come all at once: ask for more with --requests", arrivals.size(),
                trace.string());
  }
  return arrivals;
}

double rate_of(std::span<const TraceArrival> arrivals) {
  return static_cast<double>(arrivals.size() - 1) / (arrivals.back().at_s - arrivals.front().at_s);
}

std::size_t chats_of(const ServeLoadOptions& options) { return (options.requests + options.turns - 1) / options.turns; }

Result<std::vector<LoadRequest>> make_load(std::span<const LoadContext> contexts, std::span<const TraceArrival> trace,
                                           const ServeLoadOptions& options) {
  const auto turns = static_cast<double>(options.turns);
  SHALE_ASSIGN(ArrivalProcess poisson, ArrivalProcess::create({.per_s = 1 / turns}, options.seed));
  // Apart from the arrivals' draws, and those of later turns, so that none depends on how many another takes.
  Random random(~options.seed), random_later(options.seed ^ kLaterTurns);
  std::vector<std::size_t> by_rank(contexts.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  for (std::size_t i = by_rank.size(); i > 1; --i) std::swap(by_rank[i - 1], by_rank[random.below(i)]);
  const Zipf popularity(contexts.size(), options.zipf);

  std::vector<LoadRequest> load;
  load.reserve(options.requests);
  for (std::size_t chat = 0; chat < chats_of(options); ++chat) {
    LoadRequest& request = load.emplace_back();
    request.chat = chat;
    request.context = by_rank[popularity.draw(random)];
    const LoadContext& context = contexts[request.context];
    request.question = random.below(context.questions.size());
    request.context_tokens = static_cast<std::uint32_t>(context.tokens.size());
    request.answer_tokens = options.answer_tokens;
    if (trace.empty()) {
      request.at_s = poisson.next();
    } else {
      const TraceArrival& arrival = trace[chat];
      request.at_s = (arrival.at_s - trace.front().at_s) * rate_of(trace) * turns;
      request.context_tokens = std::clamp(arrival.input_tokens, 1U, request.context_tokens);
      request.answer_tokens = std::clamp(arrival.output_tokens, 1U, options.answer_tokens);
    }
    add_later_turns(load, context.questions.size(), options, random_later);
  }
  return load;
}

std::vector<LoadRequest> at_rate(std::vector<LoadRequest> load, double requests_per_s) {
  for (LoadRequest& request : load) request.at_s /= requests_per_s;
  return load;
}

std::vector<bool> repeats_of(std::span<const LoadRequest> load) {
  std::set<std::size_t> contexts;
  std::vector<bool> repeats;
  for (const LoadRequest& request : load) repeats.push_back(!contexts.insert(request.context).second);
  return repeats;
}

}  // namespace shale
