#include "microbench/fio.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/aligned_buffer.h"
#include "tiers/file_tier.h"
#include "tiers/uring_reader.h"

namespace shale::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

bool fio_installed() { return std::system("fio --version >/dev/null 2>&1") == 0; }

Result<FioMetrics> run_fio(const std::filesystem::path& file, const FioJob& job) {
  const std::string command = fmt::format(
      "fio --name=shale --filename={} --rw={} --bs={} --size={} --iodepth={} --direct=1 --ioengine=io_uring "
      "--output-format=json 2>/dev/null",
      quoted(file.string()), job.mode, job.request_bytes, job.total_bytes, job.in_flight);
  std::string output;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return fail(ErrorCode::kIo, "cannot start fio");
  std::array<char, 4096> piece;
  while (const std::size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe)) output.append(piece.data(), bytes);
  const int status = pclose(pipe);
  const auto json = nlohmann::json::parse(output, nullptr, false);
  if (status != 0 || json.is_discarded() || !json.contains("jobs") || json["jobs"].empty()) {
    return fail(ErrorCode::kUnsupported, "fio does not run in {}: give another folder, or install fio",
                file.parent_path().string());
  }
  const auto& measured = json["jobs"][0][job.mode == "write" ? "write" : "read"];
  return FioMetrics{measured.value("bw_bytes", 0.0),
                    measured.value("/clat_ns/percentile/50.000000"_json_pointer, 0.0) * 1e-9};
}

FioJob like_disk_reads(std::string mode, std::uint64_t unit_bytes, std::uint64_t blobs, std::uint64_t total_bytes) {
  const std::uint64_t unit = round_up(unit_bytes, kIoAlignment);
  const std::uint64_t request = std::min(unit, UringReader::kPieceBytes);
  const std::uint64_t pieces = blobs * ((unit + request - 1) / request);
  return {std::move(mode), request, std::min<std::uint64_t>(pieces, UringReader::kPiecesInFlight), total_bytes};
}

FioJob like_disk_writes(std::uint64_t unit_bytes, std::uint64_t blobs, std::uint64_t total_bytes) {
  return {"write", round_up(unit_bytes, kIoAlignment), std::min<std::uint64_t>(blobs, FileTierOptions().threads),
          total_bytes};
}

}  // namespace shale::bench
