// The main job on real documents, measured: documents are ingested and profiled, and the same requests answered live
// from caches that are too small for them, by one planner after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "demo/demo_report.h"

namespace shale {

struct DemoWorkload {
  std::uint32_t requests = 48;
  std::uint32_t answer_tokens = 16;
  std::uint64_t seed = 1;
};

// A stack of its own, empty, whose cache this planner decides.
using OpenDemoStack = std::function<Result<std::unique_ptr<DemoStack>>(const std::string& planner)>;

// Everything after loading the model. `planners` as parse_planner has them, at least one; `shale` is asked first,
// whatever the order, since the stack on which documents are profiled is its. Documents without questions have the
// model write some. kCancelled when interrupted.
Status run_demo(const OpenDemoStack& open, std::span<const std::string> planners, std::vector<DemoDocument> documents,
                const DemoWorkload& workload, DemoReport& report, const OutputOptions& output);

}  // namespace shale
