// The traces that benchmarks of the simulator run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/error.h"
#include "trace/trace.h"

namespace shale {

void add_bench_traces(Command command, std::vector<std::string>& files);

// The named files; without any, the Mooncake traces of the tests' data; without those, or if `tiny`, made-up chats.
Result<std::vector<Trace>> bench_traces(std::vector<std::string> files, bool tiny, std::uint64_t seed);

}  // namespace shale
