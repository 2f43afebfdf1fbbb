#include "trace/trace_writer.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>

namespace shale {
namespace {

using Ids = std::span<const std::uint64_t>;

void append_runs(Ids ids, std::string& line) {
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1 && ids[last + 1] != 0) ++last;
    fmt::format_to(std::back_inserter(line), " {}", ids[i]);
    if (last > i) fmt::format_to(std::back_inserter(line), "-{}", ids[last]);
    i = last + 1;
  }
}

void append_plain(const RawRequest& request, Ids prompt, Ids output, std::string& line) {
  fmt::format_to(std::back_inserter(line), "{} {} {}", request.arrival_s, request.input_tokens, request.output_tokens);
  append_runs(prompt, line);
  if (!output.empty()) line += " |";
  append_runs(output, line);
}

void append_json(const RawRequest& request, Ids prompt, Ids output, std::uint32_t block_tokens, std::uint64_t unnamed,
                 std::string& line) {
  fmt::format_to(std::back_inserter(line),
                 R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "block_size": {}, "hash_ids": [{}])",
                 request.arrival_s * 1000, request.input_tokens, request.output_tokens, block_tokens,
                 fmt::join(prompt, ", "));
  if (!output.empty()) {
    fmt::format_to(std::back_inserter(line), R"(, "output_hash_ids": [{}])", fmt::join(output, ", "));
  }
  if (unnamed > 0) fmt::format_to(std::back_inserter(line), R"(, "unnamed_length": {})", unnamed);
  line += '}';
}

}  // namespace

Result<TraceWriter> TraceWriter::create(const std::filesystem::path& path, TraceForm form, std::uint32_t block_tokens) {
  const std::string name = path == "-" ? "standard output" : path.string();
  const int file =
      path == "-" ? dup(STDOUT_FILENO) : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  gzFile stream = file < 0 ? nullptr : gzdopen(file, path.extension() == ".gz" ? "wb" : "wbT");
  if (!stream) {
    const int reason = errno;
    if (file >= 0) close(file);
    return fail(ErrorCode::kIo, "cannot write {}: {}", name, std::strerror(reason));
  }
  TraceWriter writer(stream, name, form, block_tokens);
  if (form == TraceForm::kPlain) {
    writer.line_ = fmt::format("shale-trace 1 {}", block_tokens);
    SHALE_TRY(writer.put());
  }
  return writer;
}

Status TraceWriter::write(const RawRequest& request) {
  const Ids blocks = request.blocks;
  const Ids prompt = blocks.first(blocks.size() - request.output_blocks), output = blocks.last(request.output_blocks);
  const std::uint64_t named = prompt.size() * block_tokens_;
  const std::uint64_t unnamed = request.input_tokens >= named + block_tokens_ ? request.input_tokens - named : 0;
  line_.clear();
  if (form_ == TraceForm::kPlain) {
    if (unnamed > 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}: {} tokens of a prompt are in no block, which JSON lines alone can say", file_, unnamed);
    }
    append_plain(request, prompt, output, line_);
  } else {
    append_json(request, prompt, output, block_tokens_, unnamed, line_);
  }
  return put();
}

Status TraceWriter::put() {
  line_ += '\n';
  if (gzwrite(stream_.get(), line_.data(), static_cast<unsigned>(line_.size())) == 0) return cannot_write();
  return {};
}

Status TraceWriter::finish() {
  if (gzclose_w(stream_.release()) != Z_OK) return cannot_write();
  return {};
}

std::unexpected<Error> TraceWriter::cannot_write() const {
  return fail(ErrorCode::kIo, "cannot write {}: {}", file_, std::strerror(errno));
}

}  // namespace shale
