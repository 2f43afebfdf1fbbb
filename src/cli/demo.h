// The main job on real documents, measured: documents are met and profiled, requests answered from a cache that is too
// small for them, and the same workload compared under other policies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/demo_report.h"

namespace shale {

struct DemoWorkload {
  std::uint32_t requests = 48;
  std::uint32_t answer_tokens = 16;
  std::uint64_t seed = 1;
};

// Everything after loading the model. Documents without questions have the model write some. kCancelled when
// interrupted; the stack's folder is its owner's to remove.
Status run_demo(DemoStack& stack, std::vector<DemoDocument> documents, const DemoWorkload& workload, DemoReport& report,
                const OutputOptions& output);

}  // namespace shale
