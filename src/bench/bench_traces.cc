#include "bench/bench_traces.h"

#include <cstdlib>
#include <filesystem>

#include "trace/synthetic.h"
#include "trace/trace_reader.h"

namespace shale {

namespace fs = std::filesystem;

void add_bench_traces(Command command, std::vector<std::string>& files) {
  command
      .add_option("--trace", files,
                  "Traces to measure on (default: the Mooncake traces of $SHALE_DATA_DIR, else chats that are made up)")
      .type_name("FILE[,FILE]")
      .delimiter(',');
}

Result<std::vector<Trace>> bench_traces(std::vector<std::string> files, bool tiny, std::uint64_t seed) {
  if (const char* data = std::getenv("SHALE_DATA_DIR"); files.empty() && data != nullptr && !tiny) {
    for (const char* name : {"mooncake_conversation_trace.jsonl", "mooncake_synthetic_trace.jsonl"}) {
      if (const fs::path path = fs::path(data) / "traces" / name; fs::exists(path)) files.push_back(path);
    }
  }
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    SHALE_ASSIGN(traces.emplace_back(), load_trace(file));
  }
  if (traces.empty()) {
    SessionLoad load = chat_load();
    load.load.requests = tiny ? 300 : 20'000;
    load.load.seed = seed;
    SHALE_ASSIGN(const auto reader, generate(load));
    SHALE_ASSIGN(traces.emplace_back(), load_trace(*reader, "chats"));
  }
  return traces;
}

}  // namespace shale
