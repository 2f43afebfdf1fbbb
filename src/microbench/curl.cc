#include "microbench/curl.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tiers/blob_frame.h"

namespace shale::bench {
namespace {

constexpr std::size_t kProcesses = 8;

// `more`: lines of curl's configuration for each request.
Status run_curls(const std::vector<HttpRequest>& requests, const std::string& more,
                 const std::filesystem::path& scratch) {
  std::array<std::string, kProcesses> configurations;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::string& to = configurations[i % kProcesses];
    to += fmt::format("{}url = \"{}\"\nrequest = \"{}\"\nfail\nsilent\noutput = \"/dev/null\"\n{}",
                      to.empty() ? "" : "next\n", requests[i].url, requests[i].method, more);
    for (const auto& [name, value] : requests[i].headers) to += fmt::format("header = \"{}: {}\"\n", name, value);
  }
  std::string command;
  for (std::size_t i = 0; i < kProcesses; ++i) {
    const std::filesystem::path file = scratch / fmt::format("curl-{}", i);
    std::ofstream(file) << configurations[i];
    command += fmt::format("curl -q -K '{}' & p{}=$!; ", file.string(), i);
  }
  for (std::size_t i = 0; i < kProcesses; ++i) command += fmt::format("wait $p{} || exit 1; ", i);
  if (std::system(command.c_str()) == 0) return {};
  return fail(ErrorCode::kIo, "curl does not move the objects that the tier moves");
}

}  // namespace

bool curl_installed() { return std::system("curl --version >/dev/null 2>&1") == 0; }

Result<std::vector<TierIoRow>> measure_curl(const S3Tier& tier, const std::vector<BlobId>& blobs,
                                            std::uint64_t unit_bytes, const std::filesystem::path& scratch,
                                            const Clock& clock) {
  const std::string object(framed_bytes(unit_bytes), 'x');
  const std::filesystem::path upload = scratch / "curl-object";
  std::ofstream(upload) << object;
  const std::string hash = sha256_hex(object);
  std::vector<HttpRequest> gets, puts, removals;
  for (const BlobId& id : blobs) {
    const BlobId other{{~id.object.high, id.object.low}, id.part};
    gets.push_back(tier.request_for("GET", id));
    puts.push_back(tier.request_for("PUT", other, hash));
    removals.push_back(tier.request_for("DELETE", other));
  }
  const auto rate = [&](const std::vector<HttpRequest>& requests, const std::string& more) -> Result<double> {
    const double start_s = clock.now_s();
    SHALE_TRY(run_curls(requests, more, scratch));
    return static_cast<double>(blobs.size() * unit_bytes) / (clock.now_s() - start_s);
  };
  const std::string upload_lines = fmt::format("upload-file = \"{}\"\nheader = \"Expect:\"\n", upload.string());
  SHALE_ASSIGN(const double read, rate(gets, ""));
  SHALE_ASSIGN(const double written, rate(puts, upload_lines));
  SHALE_TRY(run_curls(removals, "", scratch));
  return std::vector<TierIoRow>{{"curl", unit_bytes, "write", written, 0}, {"curl", unit_bytes, "read", read, 0}};
}

}  // namespace shale::bench
