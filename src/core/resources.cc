#include "core/resources.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

namespace shale {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Of version 2: "max 100000" or "150000 100000".
double cores_of(const std::filesystem::path& group) {
  std::ifstream stream(group / "cpu.max");
  double quota = 0, period = 0;
  return stream >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// Of version 1: a quota of -1 is none.
double old_cores_of(const std::filesystem::path& group) {
  std::ifstream quotas(group / "cpu.cfs_quota_us"), periods(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quotas >> quota && periods >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// A number, or "max"; version 1 has a number beyond all memory.
double bytes_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  double bytes = 0;
  return stream >> bytes && bytes > 0 ? bytes : kNoLimit;
}
double memory_of(const std::filesystem::path& group) { return bytes_in(group / "memory.max"); }
double old_memory_of(const std::filesystem::path& group) { return bytes_in(group / "memory.limit_in_bytes"); }

bool has_word(const std::string& list, std::string_view word) {
  std::istringstream stream(list);
  for (std::string each; std::getline(stream, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

using LimitOf = double(const std::filesystem::path& group);

double least_of_groups(std::string_view membership, const std::filesystem::path& mounts, std::string_view controller,
                       LimitOf* limit_of, LimitOf* old_limit_of) {
  double least = kNoLimit;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {  // number:controllers:/group
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool newer = controllers.empty();
    if (!newer && !has_word(controllers, controller)) continue;
    const std::filesystem::path root = newer ? mounts : mounts / controller;
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    while (true) {  // inside a container the path may be the host's, and the root the container's own
      least = std::min(least, newer ? limit_of(root / group) : old_limit_of(root / group));
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

std::string own_groups() {
  std::ifstream stream("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(stream), {}};
}

constexpr const char* kMounts = "/sys/fs/cgroup";

}  // namespace

double cgroup_cores(std::string_view membership, const std::filesystem::path& mounts) {
  return least_of_groups(membership, mounts, "cpu", cores_of, old_cores_of);
}

double cgroup_memory(std::string_view membership, const std::filesystem::path& mounts) {
  return least_of_groups(membership, mounts, "memory", memory_of, old_memory_of);
}

// "cpu3 user nice system idle iowait …"; the first line, "cpu …", is the sum of all.
std::optional<double> idle_core_seconds(std::istream& stat, const std::vector<bool>& used) {
  const auto ticks_a_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::optional<double> seconds;
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(3));
    std::size_t core = 0;
    double user = 0, nice = 0, system = 0, idle = 0, waits = 0;
    if (line.starts_with("cpu ") || !(words >> core >> user >> nice >> system >> idle >> waits)) continue;
    if (core < used.size() && used[core]) seconds = seconds.value_or(0) + (idle + waits) / ticks_a_s;
  }
  return seconds;
}

std::optional<double> idle_core_seconds() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return std::nullopt;
  std::vector<bool> used(CPU_SETSIZE);
  for (std::size_t core = 0; core < used.size(); ++core) used[core] = CPU_ISSET(core, &set);
  std::ifstream stat("/proc/stat");
  return idle_core_seconds(stat, used);
}

std::uint64_t usable_memory() {
  const auto bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<std::uint64_t>(std::min(bytes, cgroup_memory(own_groups(), kMounts)));
}

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cores = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  const double granted = cgroup_cores(own_groups(), kMounts);
  return granted < cores ? std::max(1u, static_cast<std::uint32_t>(granted)) : cores;
}

}  // namespace shale
