// A coding assistant's session as its line tells it, and the blocks of its requests one after another. Private to the
// room.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/json_line.h"
#include "trace/trace_reader.h"

namespace shale {

// Blocks with consecutive ids.
struct SessionRun {
  std::uint64_t first = 0, count = 0;
};

// A request's ids are those of the request before it as far as `keep`, then runs of new ones.
struct SessionRequest {
  double time_s = 0;  // from its stream's start
  std::uint32_t input_tokens = 0, output_tokens = 0;
  std::uint32_t keep = 0;
  std::uint32_t first_run = 0, runs = 0;  // into SessionStream::runs
};

// Requests that follow one another: the session's own, or a subagent's.
struct SessionStream {
  double start_s = 0;  // from the session's start
  std::uint32_t tool_tokens = 0, system_tokens = 0;
  std::vector<SessionRequest> requests;
  std::vector<SessionRun> runs;
  std::uint64_t blocks_max = 0;  // of a request: what walking it needs in memory
};

struct Session {
  std::uint32_t block_tokens = 0;
  std::vector<SessionStream> streams;  // the session's own first
};

// Ids are local to their session, and below the first; together they leave the highest bit to ids that are shared.
inline constexpr std::uint64_t kSessionIdsMax = std::uint64_t{1} << 39;
inline constexpr std::uint64_t kSessionsMax = std::uint64_t{1} << 24;

// Reads the current line of `lines` by `json`. Every request has as many ids as its tokens fill, and at most
// `request_blocks_max`; times do not go back unless they are to be sorted.
Result<Session> parse_session(JsonLine& json, const LineSource& lines, const TraceOptions& options);

// Walks a stream and tells the blocks of each request, and of its answer as far as the next request begins with it.
class SessionWalk {
 public:
  // Ids of sessions with different `number` differ, but for those that `sharing` makes the same.
  SessionWalk(SessionStream stream, std::uint64_t number, std::uint32_t block_tokens, PrefixSharing sharing);

  bool at_end() const { return next_ == stream_.requests.size(); }
  // From the session's start. Not at the end.
  double time_s() const { return stream_.start_s + stream_.requests[next_].time_s; }
  // Fills in all of `request` but the arrival. Not at the end.
  void next(RawRequest& request);

 private:
  // Turns the path of the request before into that of `request`.
  void step(const SessionRequest& request);
  std::uint64_t global_id(std::uint64_t local, std::size_t at);

  SessionStream stream_;
  std::uint64_t number_;
  std::uint32_t block_tokens_;
  PrefixSharing sharing_;
  std::size_t next_ = 0;
  std::size_t shared_blocks_;          // the first request's whole blocks of tools and system prompt
  std::vector<std::uint64_t> prefix_;  // their local ids, as far as seen
  std::vector<std::uint64_t> path_;    // the next request's ids, as they are given out
};

}  // namespace shale
