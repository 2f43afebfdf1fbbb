// Traces of a few lines, written and read back.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/temporary_folder.h"
#include "support/test_data.h"
#include "trace/trace_reader.h"

namespace shale::testing {

class TraceFiles : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text, const std::string& name = "t") {
    const auto path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::filesystem::path gzip(const std::string& text, const std::string& name = "t.gz") {
    const auto path = folder_.path() / name;
    gzFile stream = gzopen(path.c_str(), "wb");
    gzwrite(stream, text.data(), static_cast<unsigned>(text.size()));
    gzclose(stream);
    return path;
  }

  // The error without the file's name: "2:14: …".
  std::string error_of(const std::string& text, const TraceOptions& options = {}) {
    const auto path = file(text);
    const auto trace = load_trace(path, options);
    if (trace) return "no error";
    EXPECT_EQ(trace.error().code, ErrorCode::kInvalidArgument);
    const std::string& message = trace.error().message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const std::string prefix = path.string() + ":";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  Trace trace_of(const std::string& text, const TraceOptions& options = {}) {
    auto trace = load_trace(file(text), options);
    EXPECT_TRUE(trace) << trace.error().message;
    return trace ? std::move(*trace) : Trace();
  }

  std::vector<RawRequest> requests_of(const std::filesystem::path& path, const TraceOptions& options = {}) {
    auto reader = open_trace(path, options);
    EXPECT_TRUE(reader) << reader.error().message;
    return reader ? rest_of(**reader) : std::vector<RawRequest>();
  }

  static std::vector<RawRequest> rest_of(TraceReader& reader) {
    std::vector<RawRequest> found;
    for (RawRequest request;;) {
      const auto more = reader.next(request);
      EXPECT_TRUE(more) << more.error().message;
      if (!more || !*more) return found;
      found.push_back(request);
    }
  }

  TemporaryFolder folder_;
};

using Ids = std::vector<std::uint64_t>;
using Blocks = std::vector<BlockId>;

inline Blocks blocks_of(const Trace& trace, std::size_t request) {
  const auto blocks = trace.conversation(trace.requests.at(request));
  return {blocks.begin(), blocks.end()};
}

}  // namespace shale::testing
