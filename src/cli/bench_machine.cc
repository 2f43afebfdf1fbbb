#include "cli/bench_machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "core/units.h"
#include "model/attention.h"

namespace shale {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 20;  // beyond any cache
constexpr int kReadPasses = 3;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

// The best of several passes over the buffer, split between threads.
double read_bandwidth(const std::vector<std::uint64_t>& buffer, std::uint32_t threads) {
  const std::size_t share = buffer.size() / threads;
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    std::vector<std::uint64_t> sums(threads);
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> workers;
      for (std::uint32_t t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
          const auto first = buffer.begin() + static_cast<std::ptrdiff_t>(t * share);
          sums[t] = std::reduce(first, first + static_cast<std::ptrdiff_t>(share));
        });
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool all_read = std::reduce(sums.begin(), sums.end()) == share * threads;  // the buffer is all ones
    if (all_read) best = std::max(best, static_cast<double>(share * threads * sizeof(std::uint64_t)) / seconds);
  }
  return best;
}

}  // namespace

Machine measure_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.instructions = attention_target();
  machine.cores = std::max(1u, std::thread::hardware_concurrency());
  machine.memory_bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::vector<std::uint64_t> buffer(kReadBytes / sizeof(std::uint64_t), 1);
  machine.read_bytes_per_s_one = read_bandwidth(buffer, 1);
  machine.read_bytes_per_s_all = read_bandwidth(buffer, machine.cores);
  return machine;
}

Json Machine::json() const {
  return {{"cpu", cpu},
          {"instructions", instructions},
          {"cores", cores},
          {"memory_bytes", memory_bytes},
          {"read_bytes_per_second_one_thread", read_bytes_per_s_one},
          {"read_bytes_per_second", read_bytes_per_s_all}};
}

std::string Machine::text() const {
  return fmt::format("{}, {} cores, {}, {}; memory read {} with one thread, {} with all", cpu, cores, instructions,
                     format_bytes(memory_bytes), format_rate(read_bytes_per_s_one), format_rate(read_bytes_per_s_all));
}

}  // namespace shale
