// Arrivals and token counts without ids, as AzurePublicDataset's LLM inference traces of 2023 and 2024 have them
// (github.com/Azure/AzurePublicDataset):
//
//   TIMESTAMP,ContextTokens,GeneratedTokens
//   2023-11-16 18:17:03.9799600,4808,10
//
// Every block is its request's alone: such a trace tells about load, not about reuse.
#include <chrono>

#include "trace/formats.h"
#include "trace/line_scanner.h"

namespace shale {
namespace {

class AzureReader final : public LineTraceReader {
 public:
  AzureReader(LineSource lines, const TraceOptions& options)
      : LineTraceReader(std::move(lines), options),
        block_tokens_(options.block_tokens ? options.block_tokens : kBlockTokensDefault) {}

  std::string_view format() const override { return "azure"; }
  std::uint32_t block_tokens() const override { return block_tokens_; }

  Status read_header() {
    SHALE_TRY(lines_.next());
    if (lines_.line() == kHeader) return {};
    return lines_.fail_at(lines_.line().data(), "the columns \"{}\" are expected", kHeader);
  }

 private:
  static constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

  Result<bool> read(RawRequest& request) override {
    SHALE_ASSIGN(const bool more, lines_.next());
    if (!more) return false;
    LineScanner scan(lines_);
    double time_s = 0;
    SHALE_TRY(read_time(scan, time_s));
    SHALE_TRY(scan.expect(",", "a comma"));
    const char* tokens = scan.at();
    SHALE_TRY(scan.integer(request.input_tokens, "the number of prompt tokens"));
    SHALE_TRY(scan.expect(",", "a comma"));
    SHALE_TRY(scan.integer(request.output_tokens, "the number of answer tokens"));
    if (!scan.at_end()) return lines_.fail_at(scan.at(), "a row has three columns");
    const std::uint64_t blocks = blocks_of(request.input_tokens, block_tokens_);
    SHALE_TRY(check_room(blocks, tokens));
    for (std::uint64_t i = 0; i < blocks; ++i) request.blocks.push_back(next_id_++);
    SHALE_ASSIGN(request.arrival_s, arrival(time_s, lines_.line().data()));
    return true;
  }

  // "2023-11-16 18:17:03.9799600", with or without "+00:00" behind; seconds since 1970.
  Status read_time(LineScanner& scan, double& out) {
    const char* at = scan.at();
    int year = 0;
    unsigned month = 0, day = 0, hour = 0, minute = 0;
    double second = 0;
    SHALE_TRY(scan.integer(year, "a year", 1900, 9999));
    SHALE_TRY(scan.expect("-", "\"-\""));
    SHALE_TRY(scan.integer(month, "a month", 1u, 12u));
    SHALE_TRY(scan.expect("-", "\"-\""));
    SHALE_TRY(scan.integer(day, "a day", 1u, 31u));
    SHALE_TRY(scan.expect(" ", "a blank between date and time"));
    SHALE_TRY(scan.integer(hour, "an hour", 0u, 23u));
    SHALE_TRY(scan.expect(":", "\":\""));
    SHALE_TRY(scan.integer(minute, "a minute", 0u, 59u));
    SHALE_TRY(scan.expect(":", "\":\""));
    SHALE_TRY(scan.real(second, "a second"));
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
    if (!date.ok() || second >= 61) return lines_.fail_at(at, "there is no such date and time");
    scan.accept("+00:00");
    const auto days = std::chrono::sys_days(date).time_since_epoch().count();
    out = static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
    return {};
  }

  std::uint32_t block_tokens_;
  std::uint64_t next_id_ = 0;
};

}  // namespace

ReaderResult read_azure(LineSource lines, const TraceOptions& options) {
  auto reader = std::make_unique<AzureReader>(std::move(lines), options);
  SHALE_TRY(reader->read_header());
  SHALE_TRY(reader->start());
  return reader;
}

}  // namespace shale
