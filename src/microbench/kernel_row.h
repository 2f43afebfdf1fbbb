// One line of `shale bench kernels`: how near a kernel comes to the memory's own read bandwidth, measured in the same
// run.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/executor.h"

namespace shale::bench {

struct KernelRow {
  std::string name;    // "decode attention 9/3 d64, 2 threads"
  double bytes = 0;    // bytes that one pass must read (and, where the kernel's job is to write, writes)
  double seconds = 0;  // of one pass, the median of several
  double share_of_read_bandwidth = 0;  // bytes / seconds over the read bandwidth with the same number of threads
};

inline std::string thread_count(const Executor& executor) {
  return fmt::format("{} thread{}", executor.threads(), executor.threads() == 1 ? "" : "s");
}

}  // namespace shale::bench
