// libCacheSim through its Python package, as the peer of `shale bench simulate` on flat requests.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/error.h"
#include "trace/trace.h"

namespace shale {

struct PeerRun {
  std::uint64_t misses = 0;
  double seconds = 0;  // of the package's own loop, its trace file in memory's page cache
};

// One run of the trace, whose requests are of one block each, through a cache of `blocks`, for each policy that has the
// same meaning there, by our name. kUnsupported when `python` cannot import libcachesim.
Result<std::map<std::string, PeerRun>> run_libcachesim(const std::string& python, const Trace& trace,
                                                       std::uint64_t blocks);

}  // namespace shale
