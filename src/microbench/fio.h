// What fio gets out of a folder, to compare the disk tier with: the same requests, as many of them in flight, past the
// page cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/error.h"

namespace shale::bench {

struct FioJob {
  std::string mode;  // fio's rw: "write", "read", "randread"
  std::uint64_t request_bytes = 0;
  std::uint64_t in_flight = 0;  // requests
  std::uint64_t total_bytes = 0;
};
struct FioMetrics {
  double bytes_per_s = 0;
  double median_s = 0;  // of a request
};

// Whether there is an fio to compare with.
bool fio_installed();

// Runs by io_uring on one file, which it lays out first where it reads. kUnsupported where fio does not run there.
Result<FioMetrics> run_fio(const std::filesystem::path& file, const FioJob& job);

// The requests that the disk tier makes of the kernel for blobs of `unit_bytes` when `blobs` of them are asked for at
// once: reads go in pieces of at most UringReader::kPieceBytes, kPiecesInFlight at once; a blob is written by one call,
// on one of the tier's threads.
FioJob like_disk_reads(std::string mode, std::uint64_t unit_bytes, std::uint64_t blobs, std::uint64_t total_bytes);
FioJob like_disk_writes(std::uint64_t unit_bytes, std::uint64_t blobs, std::uint64_t total_bytes);

}  // namespace shale::bench
