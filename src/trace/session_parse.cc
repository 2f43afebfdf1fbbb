#include "trace/formats.h"
#include "trace/session.h"

namespace shale {
namespace {

constexpr int kSubagentDepthMax = 8;

enum LineField : std::size_t { kBlockSize, kIdScope, kLineTools, kLineSystem, kLineRequests };
constexpr std::array<std::string_view, 5> kLineNames = {"block_size", "hash_id_scope", "tool_tokens", "system_tokens",
                                                        "requests"};

// Fields of a request, or of a subagent, which has requests of its own.
enum EntryField : std::size_t { kTime, kInput, kOutput, kKeep, kNew, kTools, kSystem, kRequests };
constexpr std::array<std::string_view, 8> kEntryNames = {"t",   "in",          "out",           "keep",
                                                         "new", "tool_tokens", "system_tokens", "requests"};

class SessionParser {
 public:
  SessionParser(JsonLine& json, const LineSource& lines, const TraceOptions& options)
      : json_(json), lines_(lines), options_(options) {}

  Result<Session> parse() {
    add_stream();
    std::string_view scope = "local";
    const auto on_field = [&](std::size_t field, JsonValue value) -> Status {
      switch (field) {
        case kBlockSize:
          return json_.count(value, session_.block_tokens, kBlockTokensMax);
        case kIdScope:
          return json_.string(value, scope);
        case kLineTools:
          return json_.count(value, session_.streams[0].tool_tokens);
        case kLineSystem:
          return json_.count(value, session_.streams[0].system_tokens);
        default:
          return parse_requests(value, 0);
      }
    };
    SHALE_ASSIGN(const JsonPlaces places, json_.object(kLineNames, on_field));
    for (const LineField field : {kBlockSize, kLineRequests}) {
      if (!places[field]) return json_.fail_at(lines_.line().data(), "\"{}\" is missing", kLineNames[field]);
    }
    if (session_.block_tokens == 0) return json_.fail_at(places[kBlockSize], "a block has a token at least");
    if (scope != "local") {
      return json_.fail_at(places[kIdScope], "ids of scope \"{}\" are not known; \"local\" are", scope);
    }
    SHALE_TRY(check_counts());
    return std::move(session_);
  }

 private:
  struct Count {
    std::uint64_t blocks, tokens;
    const char* at;
  };

  std::size_t add_stream() {
    session_.streams.emplace_back();
    return session_.streams.size() - 1;
  }

  Status parse_requests(JsonValue value, std::size_t stream) {
    std::uint64_t blocks = 0;
    return json_.array(value, [&](JsonValue entry) { return parse_entry(entry, stream, blocks); });
  }

  // `blocks`: of the request before; this one's afterwards.
  Status parse_entry(JsonValue value, std::size_t stream, std::uint64_t& blocks) {
    const char* at = JsonLine::place(value);
    SessionRequest request;
    std::vector<SessionRun> runs;
    std::uint32_t tool_tokens = 0, system_tokens = 0;
    const std::size_t first_nested = session_.streams.size();
    const auto on_field = [&](std::size_t field, JsonValue inner) -> Status {
      switch (field) {
        case kTime:
          return json_.number(inner, request.time_s);
        case kInput:
          return json_.count(inner, request.input_tokens);
        case kOutput:
          return json_.count(inner, request.output_tokens);
        case kKeep:
          return json_.count(inner, request.keep);
        case kNew:
          return json_.array(inner, [&](JsonValue run) { return parse_run(run, runs.emplace_back()); });
        case kTools:
          return json_.count(inner, tool_tokens);
        case kSystem:
          return json_.count(inner, system_tokens);
        default:
          return parse_nested(inner);
      }
    };
    SHALE_ASSIGN(const JsonPlaces places, json_.object(value, kEntryNames, on_field));
    if (!places[kTime]) return json_.fail_at(at, "\"t\" is missing");
    if (places[kRequests]) {
      SessionStream& subagent = session_.streams[first_nested];
      subagent.tool_tokens = tool_tokens;
      subagent.system_tokens = system_tokens;
      for (std::size_t i = first_nested; i < session_.streams.size(); ++i)
        session_.streams[i].start_s += request.time_s;
      return {};
    }
    for (const EntryField field : {kInput, kOutput, kKeep, kNew}) {
      if (!places[field]) return json_.fail_at(at, "\"{}\" is missing", kEntryNames[field]);
    }
    return add_request(request, runs, stream, places, blocks);
  }

  Status parse_nested(JsonValue value) {
    if (++depth_ > kSubagentDepthMax) {
      return json_.fail_at(JsonLine::place(value), "more than {} subagents within each other", kSubagentDepthMax);
    }
    SHALE_TRY(parse_requests(value, add_stream()));
    --depth_;
    return {};
  }

  // [first, count]
  Status parse_run(JsonValue value, SessionRun& run) {
    const char* at = JsonLine::place(value);
    int numbers = 0;
    SHALE_TRY(json_.array(value, [&](JsonValue number) -> Status {
      if (numbers == 2) return json_.fail_at(at, "a run of ids is two numbers, [first, count]");
      return json_.count(number, numbers++ == 0 ? run.first : run.count, kSessionIdsMax - 1);
    }));
    if (numbers != 2) return json_.fail_at(at, "a run of ids is two numbers, [first, count]");
    if (run.first + run.count > kSessionIdsMax) return json_.fail_at(at, "ids are below {}", kSessionIdsMax);
    return {};
  }

  Status add_request(SessionRequest& request, const std::vector<SessionRun>& runs, std::size_t stream,
                     const JsonPlaces& places, std::uint64_t& blocks) {
    SessionStream& to = session_.streams[stream];
    if (!to.requests.empty() && request.time_s < to.requests.back().time_s && !options_.sort) {
      return json_.fail_at(places[kTime],
                           "the request comes {:.6g} s before the one before it; sort the file, or ask for sorting",
                           to.requests.back().time_s - request.time_s);
    }
    if (request.keep > blocks) {
      return json_.fail_at(places[kKeep], "{} blocks are kept of the request before, which has {}", request.keep,
                           blocks);
    }
    blocks = request.keep;
    for (const SessionRun& run : runs) {
      blocks += run.count;
      if (blocks > options_.limits.request_blocks_max) {
        return json_.fail_at(places[kNew], "the request has more than {} blocks", options_.limits.request_blocks_max);
      }
    }
    to.blocks_max = std::max(to.blocks_max, blocks);
    counts_.push_back({blocks, request.input_tokens, places[kInput]});
    request.first_run = static_cast<std::uint32_t>(to.runs.size());
    request.runs = static_cast<std::uint32_t>(runs.size());
    to.runs.insert(to.runs.end(), runs.begin(), runs.end());
    to.requests.push_back(request);
    return {};
  }

  // After the line, for only then the size of a block is known for certain.
  Status check_counts() const {
    for (const Count& count : counts_) {
      if (block_count_fits(count.blocks, count.tokens, session_.block_tokens)) continue;
      return json_.fail_at(count.at, "{} blocks for {} tokens, where {} of {} tokens are expected", count.blocks,
                           count.tokens, count.tokens / session_.block_tokens, session_.block_tokens);
    }
    return {};
  }

  JsonLine& json_;
  const LineSource& lines_;
  const TraceOptions& options_;
  Session session_;
  std::vector<Count> counts_;
  int depth_ = 0;
};

}  // namespace

Result<Session> parse_session(JsonLine& json, const LineSource& lines, const TraceOptions& options) {
  return SessionParser(json, lines, options).parse();
}

}  // namespace shale
