#include <fmt/ranges.h>

#include <vector>

#include "trace/formats.h"
#include "trace/json_line.h"

namespace shale {
namespace {

// Fields by which JSON Lines are told apart, and what opens them.
struct JsonFormat {
  std::string_view field;
  ReaderResult (*open)(LineSource, const TraceOptions&);
};
constexpr std::array<JsonFormat, 6> kJsonFormats = {{{"hash_ids", read_hash_ids},
                                                     {"requests", read_sessions},
                                                     {"token_ids", read_tokens},
                                                     {"prompt_token_ids", read_tokens},
                                                     {"prompt", read_text},
                                                     {"text", read_text}}};

ReaderResult open_json(LineSource lines, const TraceOptions& options) {
  std::vector<std::string_view> names;
  for (const JsonFormat& format : kJsonFormats) names.push_back(format.field);
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  names.push_back("context");
  JsonLine json(lines);
  SHALE_ASSIGN(const JsonPlaces places, json.object(names, [&](std::size_t, JsonValue v) { return json.skip(v); }));
  for (std::size_t i = 0; i < kJsonFormats.size(); ++i) {
    if (!places[i]) continue;
    lines.unread();
    return kJsonFormats[i].open(std::move(lines), options);
  }
  if (places[kJsonFormats.size()]) {
    return lines.fail_at(lines.line().data(),
                         "these are documents; `shale trace make questions` makes a trace of them");
  }
  return lines.fail_at(lines.line().data(), "no trace is known by these fields; one has any of {}", known);
}

}  // namespace

Result<std::unique_ptr<TraceReader>> open_trace(const std::filesystem::path& path, const TraceOptions& options) {
  if (options.block_tokens > kBlockTokensMax) {
    return fail(ErrorCode::kInvalidArgument, "a block has 1 to {} tokens, not {}", kBlockTokensMax,
                options.block_tokens);
  }
  SHALE_ASSIGN(LineSource lines, LineSource::open(path, options.limits.line_bytes_max));
  SHALE_ASSIGN(const bool more, lines.next());
  if (!more) return fail(ErrorCode::kInvalidArgument, "{} is empty; a trace has a request at least", lines.file());
  const std::string_view line = lines.line();
  if (line[line.find_first_not_of(" \t")] == '{') return open_json(std::move(lines), options);
  const bool is_plain = line.starts_with("shale-trace"), is_azure = line.starts_with("TIMESTAMP,");
  if (!is_plain && !is_azure) {
    return lines.fail_at(line.data(), "this begins like no trace that is known; docs/formats/trace.md tells which are");
  }
  lines.unread();
  return is_plain ? read_plain(std::move(lines), options) : read_azure(std::move(lines), options);
}

}  // namespace shale
