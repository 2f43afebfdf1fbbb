// JSON Lines of coding assistants' sessions, one a line, as made of github.com/callanjfox/kv-cache-tester's traces:
//
//   {"block_size": 64, "tool_tokens": 12974, "system_tokens": 4243, "requests": [
//     {"t": 0.0, "in": 71175, "out": 169, "keep": 0, "new": [[1, 1112]]},
//     {"t": 19.0, "in": 72762, "out": 296, "keep": 1112, "new": [[1113, 24]]},
//     {"t": 30.5, "type": "subagent", "tool_tokens": 8306, "system_tokens": 735, "requests": […]}, …]}
//
// Sessions that overlap are merged by time, so they are in memory together: their runs of ids, and the path of each
// stream's next request. A line of a few runs may stand for millions of blocks: how many, is bounded before they are
// made.
#include <queue>

#include "trace/formats.h"
#include "trace/session.h"
#include "trace/session_starts.h"

namespace shale {
namespace {

class SessionReader final : public LineTraceReader {
 public:
  SessionReader(LineSource lines, const TraceOptions& options, SessionClock clock)
      : LineTraceReader(std::move(lines), options),
        json_(lines_),
        options_(options),
        clock_(std::move(clock)),
        block_tokens_(options.block_tokens) {}

  std::string_view format() const override { return "sessions"; }
  std::uint32_t block_tokens() const override { return block_tokens_; }

 private:
  struct Stream {
    double session_s;     // when its session starts
    std::uint64_t order;  // streams in the file's order, for equal times
    std::uint64_t blocks_max;
    std::unique_ptr<SessionWalk> walk;

    double time_s() const { return session_s + walk->time_s(); }
  };
  struct Later {
    bool operator()(const Stream& a, const Stream& b) const {
      return a.time_s() != b.time_s() ? a.time_s() > b.time_s() : a.order > b.order;
    }
  };

  Result<bool> read(RawRequest& request) override {
    if (sessions_ == 0) SHALE_TRY(open_session());
    while (has_session_ && (streams_.empty() || next_start_s_ <= streams_.front().time_s())) SHALE_TRY(open_session());
    if (streams_.empty()) return false;
    std::pop_heap(streams_.begin(), streams_.end(), Later());
    Stream& stream = streams_.back();
    SHALE_ASSIGN(request.arrival_s, arrival(stream.time_s(), lines_.line().data()));
    stream.walk->next(request);
    if (stream.walk->at_end()) {
      open_blocks_ -= stream.blocks_max;
      streams_.pop_back();
    } else {
      std::push_heap(streams_.begin(), streams_.end(), Later());
    }
    return true;
  }

  // Takes in the session that was read ahead, and reads the next.
  Status open_session() {
    for (SessionStream& stream : session_.streams) {
      if (stream.requests.empty()) continue;
      open_blocks_ += stream.blocks_max;
      if (open_blocks_ > options_.limits.open_blocks_max) {
        return fail(ErrorCode::kFull,
                    "{}:{}: sessions that overlap have more than {} blocks; cut the trace, or start them farther apart",
                    lines_.file(), lines_.number(), options_.limits.open_blocks_max);
      }
      streams_.push_back(
          {next_start_s_, opened_streams_++, stream.blocks_max,
           std::make_unique<SessionWalk>(std::move(stream), sessions_, block_tokens_, options_.sessions.sharing)});
      std::push_heap(streams_.begin(), streams_.end(), Later());
    }
    session_.streams.clear();
    SHALE_ASSIGN(has_session_, lines_.next());
    if (!has_session_) return {};
    SHALE_ASSIGN(session_, parse_session(json_, lines_, options_));
    if (block_tokens_ == 0) block_tokens_ = session_.block_tokens;
    if (session_.block_tokens != block_tokens_) {
      return lines_.fail_at(lines_.line().data(), "a session of blocks of {} tokens among blocks of {}",
                            session_.block_tokens, block_tokens_);
    }
    if (++sessions_ == kSessionsMax) return lines_.fail_at(lines_.line().data(), "more than {} sessions", kSessionsMax);
    SHALE_ASSIGN(next_start_s_, clock_.next());
    return {};
  }

  JsonLine json_;
  TraceOptions options_;
  SessionClock clock_;
  std::uint32_t block_tokens_;
  std::vector<Stream> streams_;  // a heap, the one with the earliest request in front
  Session session_;              // read ahead
  double next_start_s_ = 0;
  std::uint64_t sessions_ = 0, opened_streams_ = 0, open_blocks_ = 0;
  bool has_session_ = false;
};

}  // namespace

ReaderResult read_sessions(LineSource lines, const TraceOptions& options) {
  SHALE_ASSIGN(SessionClock clock, SessionClock::create(options));
  return start_reader<SessionReader>(std::move(lines), options, std::move(clock));
}

}  // namespace shale
