// The plain form: a header with the block's size, then a request a line (docs/formats/trace.md).
//
//   shale-trace 1 512
//   0.25 7322 490 0 14-27
#include "trace/formats.h"
#include "trace/line_scanner.h"

namespace shale {
namespace {

class PlainReader final : public LineTraceReader {
 public:
  using LineTraceReader::LineTraceReader;

  std::string_view format() const override { return "plain"; }
  std::uint32_t block_tokens() const override { return block_tokens_; }

  Status read_header(std::uint32_t wanted_block_tokens) {
    SHALE_TRY(lines_.next());
    LineScanner scan(lines_);
    SHALE_TRY(scan.expect("shale-trace ", "\"shale-trace\""));
    SHALE_TRY(scan.expect("1 ", "version 1, followed by the tokens of a block"));
    const char* at = scan.at();
    SHALE_TRY(scan.integer(block_tokens_, "the tokens of a block", std::uint32_t{1}, kBlockTokensMax));
    scan.skip_blanks();
    if (!scan.at_end()) return lines_.fail_at(scan.at(), "nothing may follow the tokens of a block");
    if (wanted_block_tokens != 0 && wanted_block_tokens != block_tokens_) {
      return lines_.fail_at(at, "the trace has blocks of {} tokens, not {}", block_tokens_, wanted_block_tokens);
    }
    return {};
  }

 private:
  Result<bool> read(RawRequest& request) override {
    do {
      SHALE_ASSIGN(const bool more, lines_.next());
      if (!more) return false;
    } while (lines_.line().starts_with('#'));

    LineScanner scan(lines_);
    scan.skip_blanks();
    const char* time = scan.at();
    double time_s = 0;
    SHALE_TRY(scan.real(time_s, "the arrival in seconds"));
    SHALE_TRY(blanks(scan));
    SHALE_TRY(scan.integer(request.input_tokens, "the number of prompt tokens"));
    SHALE_TRY(blanks(scan));
    SHALE_TRY(scan.integer(request.output_tokens, "the number of answer tokens"));
    const char* prompt = scan.at();
    SHALE_TRY(read_runs(scan, request.blocks));
    const std::uint64_t blocks = request.blocks.size();
    if (!block_count_fits(blocks, request.input_tokens, block_tokens_)) {
      return lines_.fail_at(prompt, "{} blocks for {} tokens, where {} of {} tokens are expected", blocks,
                            request.input_tokens, blocks_of(request.input_tokens, block_tokens_), block_tokens_);
    }
    if (!scan.at_end()) SHALE_TRY(read_output(scan, request));
    SHALE_ASSIGN(request.arrival_s, arrival(time_s, time));
    return true;
  }

  Status read_output(LineScanner& scan, RawRequest& request) {
    const char* at = scan.at();
    SHALE_TRY(scan.expect("|", "a block's number, or \"|\" before those of the answer,"));
    const std::size_t prompt_blocks = request.blocks.size();
    SHALE_TRY(read_runs(scan, request.blocks));
    if (!scan.at_end()) return lines_.fail_at(scan.at(), "a block's number is expected");
    const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
    request.output_blocks = static_cast<std::uint32_t>(request.blocks.size() - prompt_blocks);
    if (prompt_blocks > request.input_tokens / block_tokens_) {
      return lines_.fail_at(at, "the prompt's last block is not full, so the answer's cannot follow it; leave it out");
    }
    if (request.blocks.size() > tokens / block_tokens_) {
      return lines_.fail_at(at, "{} blocks of answer, but {} tokens fill only {}", request.output_blocks, tokens,
                            tokens / block_tokens_ - prompt_blocks);
    }
    return {};
  }

  // Up to the line's end or what is no number.
  Status read_runs(LineScanner& scan, std::vector<std::uint64_t>& blocks) {
    while (!scan.at_end()) {
      SHALE_TRY(blanks(scan));
      if (scan.at_end() || *scan.at() == '|') break;
      const char* at = scan.at();
      std::uint64_t first = 0;
      SHALE_TRY(scan.integer(first, "a block's number"));
      std::uint64_t last = first;
      if (scan.accept("-")) SHALE_TRY(scan.integer(last, "the run's last block", first));
      const std::uint64_t more = last - first;
      SHALE_TRY(check_room(std::max(more, blocks.size() + more + 1), at));
      for (std::uint64_t i = 0; i <= more; ++i) blocks.push_back(first + i);
    }
    return {};
  }

  Status blanks(LineScanner& scan) {
    const char* before = scan.at();
    scan.skip_blanks();
    if (scan.at() == before && !scan.at_end()) return lines_.fail_at(before, "a blank is expected");
    return {};
  }

  std::uint32_t block_tokens_ = 0;
};

}  // namespace

ReaderResult read_plain(LineSource lines, const TraceOptions& options) {
  auto reader = std::make_unique<PlainReader>(std::move(lines), options);
  SHALE_TRY(reader->read_header(options.block_tokens));
  SHALE_TRY(reader->start());
  return reader;
}

}  // namespace shale
