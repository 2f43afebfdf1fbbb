#include "microbench/redis_benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace shale::bench {
namespace {

struct Rates {
  double per_s = 0, median_ms = 0;
};

// Of a line of its table: "SET","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…
bool parse(std::string_view line, std::string_view test, Rates& rates) {
  double average_ms = 0, least_ms = 0;
  const std::string form = fmt::format(R"("{}","%lf","%lf","%lf","%lf")", test);
  return std::sscanf(std::string(line).c_str(), form.c_str(), &rates.per_s, &average_ms, &least_ms, &rates.median_ms) ==
         4;
}

// Set and get.
Result<std::array<Rates, 2>> run(const std::string& server, int clients, std::size_t requests, std::uint64_t bytes) {
  const std::size_t colon = std::min(server.rfind(':'), server.size());
  const std::string port = colon < server.size() ? server.substr(colon + 1) : "6379";
  const std::string to = fmt::format("redis-benchmark -h '{}' -p {}", server.substr(0, colon), port);
  std::FILE* const pipe = popen(
      fmt::format("{} -c {} -n {} -d {} -t set,get --csv 2>/dev/null && {} -n 1 -q del key:__rand_int__ >/dev/null", to,
                  clients, requests, bytes, to)
          .c_str(),
      "r");
  if (!pipe) return fail(ErrorCode::kIo, "cannot start redis-benchmark");
  std::array<char, 512> line;
  std::array<Rates, 2> rates;
  bool set = false, got = false;
  while (std::fgets(line.data(), line.size(), pipe)) {
    set |= parse(line.data(), "SET", rates[0]);
    got |= parse(line.data(), "GET", rates[1]);
  }
  if (pclose(pipe) == 0 && set && got) return rates;
  return fail(ErrorCode::kUnsupported, "redis-benchmark does not get through to {} without a password", server);
}

}  // namespace

bool redis_benchmark_installed() { return std::system("redis-benchmark --version >/dev/null 2>&1") == 0; }

Result<std::vector<TierIoRow>> measure_redis_benchmark(const std::string& server, std::size_t blobs,
                                                       std::uint64_t unit_bytes) {
  SHALE_ASSIGN(const auto together, run(server, 8, blobs, unit_bytes));
  SHALE_ASSIGN(const auto alone, run(server, 1, 16, unit_bytes));
  const auto row = [&](std::string operation, const Rates& many, const Rates& one) {
    return TierIoRow{"redis-benchmark", unit_bytes, std::move(operation), many.per_s * static_cast<double>(unit_bytes),
                     one.median_ms * 1e-3};
  };
  return std::vector<TierIoRow>{row("write", together[0], alone[0]), row("read", together[1], alone[1])};
}

}  // namespace shale::bench
