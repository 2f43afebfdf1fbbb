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

// Reads a line of its table: "SET","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…
bool parse(std::string_view line, std::string_view test, Rates& rates) {
  double average_ms = 0, least_ms = 0;
  const std::string form = fmt::format(R"("{}","%lf","%lf","%lf","%lf")", test);
  return std::sscanf(std::string(line).c_str(), form.c_str(), &rates.per_s, &average_ms, &least_ms, &rates.median_ms) ==
         4;
}

// Setting random ones of as many keys, and getting one of them.
Result<std::array<Rates, 2>> run(const std::string& server, int clients, std::size_t requests, std::size_t keys,
                                 std::uint64_t bytes) {
  const std::size_t colon = std::min(server.rfind(':'), server.size());
  const std::string port = colon < server.size() ? server.substr(colon + 1) : "6379";
  const std::string to = fmt::format("-h '{}' -p {}", server.substr(0, colon), port);
  // What is read is one value again and again: random keys that are not there would count as read.
  const std::string run =
      fmt::format("{0} -c {1} -n {2} -t set -r {3} && {0} -c 1 -n 1 -t set >/dev/null && {0} -c {1} -n {2} -t get",
                  fmt::format("redis-benchmark {} -d {} --csv 2>/dev/null", to, bytes), clients, requests, keys);
  const std::string forget = fmt::format(
      "redis-cli {} eval \"redis.call('del', 'key:__rand_int__') for i = 0, {} do redis.call('unlink', "
      "string.format('key:%012d', i)) end\" 0 >/dev/null",
      to, keys - 1);
  std::FILE* const pipe = popen((run + " && " + forget).c_str(), "r");
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
  SHALE_ASSIGN(const auto together, run(server, 8, blobs, blobs, unit_bytes));
  SHALE_ASSIGN(const auto alone, run(server, 1, 16, blobs, unit_bytes));
  const auto row = [&](std::string operation, const Rates& many, const Rates& one) {
    return TierIoRow{"redis-benchmark", unit_bytes, std::move(operation), many.per_s * static_cast<double>(unit_bytes),
                     one.median_ms * 1e-3};
  };
  return std::vector<TierIoRow>{row("write", together[0], alone[0]), row("read", together[1], alone[1])};
}

}  // namespace shale::bench
