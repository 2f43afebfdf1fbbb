#include "bench/bench_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <span>
#include <thread>
#include <vector>

#include "attention/attention.h"
#include "core/resources.h"
#include "core/units.h"
#include "microbench/memory_bandwidth.h"

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
double read_bandwidth(std::span<const std::byte> buffer, std::uint32_t threads) {
  const std::size_t share = buffer.size() / threads;
  double best = 0;
  std::atomic<std::uint64_t> seen = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    const double seconds = bench::seconds_of([&] {
      std::vector<std::jthread> workers;
      for (std::uint32_t t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] { seen += bench::read_bytes(buffer.subspan(t * share, share)); });
      }
    });
    best = std::max(best, static_cast<double>(share * threads) / seconds);
  }
  return best;
}

}  // namespace

Machine measure_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.instructions = attention_target();
  machine.cores = usable_cores();
  machine.memory_bytes = usable_memory();
  const std::vector<std::byte> buffer(kReadBytes, std::byte{1});
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
