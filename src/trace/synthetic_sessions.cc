#include <algorithm>
#include <vector>

#include "trace/synthetic_parts.h"
#include "trace/zipf.h"

namespace shale {
namespace {

// A session in flight. Its blocks are its prefix's as far as that fills whole ones, then its own.
struct Live {
  double next_s = 0;  // when its next turn comes
  std::uint64_t order = 0;
  std::uint64_t turns_left = 0;
  std::uint64_t prefix = 0, prefix_tokens = 0;
  std::uint64_t text = 0;    // of its own blocks
  std::uint64_t tokens = 0;  // of the conversation so far, the prefix included
  bool is_subagent = false;
};

struct Later {
  bool operator()(const Live& a, const Live& b) const {
    return a.next_s != b.next_s ? a.next_s > b.next_s : a.order > b.order;
  }
};

double requests_per_session(const SessionLoad& o) { return o.turns_mean * (1 + o.subagents_per_turn * o.turns_mean); }

class SessionGenerator final : public TraceReader {
 public:
  SessionGenerator(const SessionLoad& options, ArrivalProcess starts)
      : options_(options),
        starts_(std::move(starts)),
        random_(options.load.seed),
        zipf_(options.prefixes, options.zipf),
        next_text_(options.prefixes),
        first_s_(starts_.next()),
        next_start_s_(first_s_) {}

  std::string_view format() const override { return "synthetic sessions"; }
  std::uint32_t block_tokens() const override { return options_.load.block_tokens; }

  Result<bool> next(RawRequest& request) override {
    if (made_++ == options_.load.requests) return false;
    while (live_.empty() || next_start_s_ <= live_.front().next_s) {
      begin(next_start_s_, false);
      next_start_s_ = starts_.next();
    }
    std::pop_heap(live_.begin(), live_.end(), Later());
    Live session = live_.back();
    live_.pop_back();
    take_turn(session, request);
    return true;
  }

 private:
  void begin(double start_s, bool is_subagent) {
    const std::uint64_t prefix = zipf_.draw(random_);
    const std::uint64_t tokens = fixed_length(options_.prefix, options_.load.seed, prefix);
    const std::uint64_t turns = 1 + random_.geometric(options_.turns_mean - 1);
    push({start_s, begun_++, turns, prefix, tokens, next_text_++, tokens, is_subagent});
  }

  void push(const Live& session) {
    live_.push_back(session);
    std::push_heap(live_.begin(), live_.end(), Later());
  }

  void take_turn(Live session, RawRequest& request) {
    const std::uint64_t wanted = draw_length(options_.input, random_), answer = draw_length(options_.answer, random_);
    if (session.tokens + wanted + answer > options_.context_max && session.tokens > session.prefix_tokens) {
      session.tokens = session.prefix_tokens + options_.summary_tokens;
      session.text = next_text_++;
    }
    const std::uint64_t taken = session.tokens + answer;
    const std::uint64_t room = options_.context_max > taken ? options_.context_max - taken : 1;
    const std::uint64_t prompt = session.tokens + std::min(wanted, room);
    session.tokens = prompt + answer;
    describe(session, prompt, answer, request);
    const double answered_s = session.next_s + static_cast<double>(answer) * options_.answer_token_s;
    if (!session.is_subagent && random_.uniform() < options_.subagents_per_turn) begin(answered_s, true);
    if (--session.turns_left == 0) return;
    session.next_s = answered_s + random_.exponential(options_.pause_s);
    push(session);
  }

  void describe(const Live& session, std::uint64_t prompt, std::uint64_t answer, RawRequest& request) const {
    const std::uint64_t size = block_tokens();
    request.arrival_s = session.next_s - first_s_;
    request.input_tokens = static_cast<std::uint32_t>(prompt);
    request.output_tokens = static_cast<std::uint32_t>(answer);
    request.output_blocks = static_cast<std::uint32_t>((prompt + answer) / size - prompt / size);
    request.blocks.clear();
    for (std::uint64_t i = 0; i < (prompt + answer) / size; ++i) {
      request.blocks.push_back(block_id(i < session.prefix_tokens / size ? session.prefix : session.text, i));
    }
  }

  SessionLoad options_;
  ArrivalProcess starts_;
  Random random_;
  Zipf zipf_;
  std::vector<Live> live_;  // a heap, the next turn in front
  std::uint64_t next_text_, begun_ = 0, made_ = 0;
  double first_s_, next_start_s_;
};

}  // namespace

Result<std::unique_ptr<TraceReader>> generate(const SessionLoad& options) {
  SHALE_TRY(check_load(options.load));
  SHALE_TRY(check_popularity(options.prefixes, options.zipf, "prefixes"));
  SHALE_TRY(check_length(options.prefix, "prefixes"));
  SHALE_TRY(check_length(options.input, "inputs"));
  SHALE_TRY(check_length(options.answer, "answers"));
  const bool has_turns =
      options.turns_mean >= 1 && options.turns_mean <= 1e6 && options.pause_s >= 0 && options.answer_token_s >= 0;
  if (!has_turns)
    return fail(ErrorCode::kInvalidArgument,
                "sessions have 1 to 1,000,000 turns in the mean, and pauses of at least 0 s");
  if (options.context_max > kTokensMax || options.summary_tokens > options.context_max) {
    return fail(ErrorCode::kInvalidArgument, "a context has at most {} tokens, and a summary fits in it", kTokensMax);
  }
  if (!(options.subagents_per_turn >= 0 && options.subagents_per_turn <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "subagents begin with a probability from 0 to 1");
  }
  ArrivalOptions starts = options.load.arrivals;
  starts.per_s /= requests_per_session(options);
  SHALE_ASSIGN(ArrivalProcess process, ArrivalProcess::create(starts, options.load.seed + 1));
  return std::make_unique<SessionGenerator>(options, std::move(process));
}

}  // namespace shale
