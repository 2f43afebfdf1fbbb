#include "bench/peers/libcachesim_peer.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/child_process.h"
#include "core/text_file.h"

namespace shale {
namespace {

// Arguments: trace file, requests, blocks. One JSON object on stdout.
constexpr char kScript[] = R"(
import json, sys, time
import libcachesim as lcs
path, requests, blocks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
runs = {}
for name, policy in (("fifo", lcs.FIFO), ("lru", lcs.LRU), ("sieve", lcs.Sieve)):
    reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE,
                             reader_init_params=lcs.ReaderInitParam(ignore_obj_size=True))
    cache = policy(cache_size=blocks)
    start = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    runs[name] = {"seconds": time.perf_counter() - start, "misses": round(miss_ratio * requests)}
print(json.dumps(runs))
)";

// libCacheSim's "oracleGeneral" records, 24 bytes packed: time (u32), object (u64), size (u32), next use (i64).
Status write_trace(const std::filesystem::path& path, const Trace& trace) {
  constexpr std::size_t kRecordBytes = 24;
  std::vector<char> bytes(kRecordBytes * trace.blocks.size());
  char* record = bytes.data();
  for (std::size_t i = 0; i < trace.blocks.size(); ++i, record += kRecordBytes) {
    const auto time = static_cast<std::uint32_t>(i), size = std::uint32_t{1};
    const std::uint64_t object = trace.blocks[i];
    const std::int64_t unknown = -2;
    std::memcpy(record, &time, 4);
    std::memcpy(record + 4, &object, 8);
    std::memcpy(record + 12, &size, 4);
    std::memcpy(record + 16, &unknown, 8);
  }
  return write_file(path.string(), {bytes.data(), bytes.size()});
}

}  // namespace

Result<std::map<std::string, PeerRun>> run_libcachesim(const std::string& python, const Trace& trace,
                                                       std::uint64_t blocks) {
  if (!run_child({python, "-c", "import libcachesim"})) {
    return fail(ErrorCode::kUnsupported,
                "{} cannot import libcachesim: `pip install libcachesim`, or name another "
                "Python by --peer-python",
                python);
  }
  SHALE_ASSIGN(const ScratchFolder folder, ScratchFolder::create(std::filesystem::temp_directory_path()));
  const auto path = folder.path() / "flat.oracleGeneral.bin";
  SHALE_TRY(write_trace(path, trace));
  SHALE_ASSIGN(const std::string out, run_child({python, "-c", kScript, path.string(),
                                                 fmt::format("{}", trace.requests.size()), fmt::format("{}", blocks)},
                                                ChildErrors::kShow));
  std::map<std::string, PeerRun> runs;
  const auto json =
      nlohmann::json::parse(out.substr(out.find('{') == std::string::npos ? 0 : out.find('{')), nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kIo, "{}: libcachesim answered '{}'", python, out);
  for (const auto& [name, run] : json.items()) {
    runs[name] = {run.value("misses", std::uint64_t{0}), run.value("seconds", 0.0)};
  }
  return runs;
}

}  // namespace shale
