#include "core/cores.h"

#include <sched.h>

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

// The limit of version 2: "max 100000" or "150000 100000".
double limit_of(const std::filesystem::path& group) {
  std::ifstream stream(group / "cpu.max");
  double quota = 0, period = 0;
  return stream >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// The limit of version 1: a quota of -1 is none.
double old_limit_of(const std::filesystem::path& group) {
  std::ifstream quotas(group / "cpu.cfs_quota_us"), periods(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quotas >> quota && periods >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

bool has_word(const std::string& list, std::string_view word) {
  std::istringstream stream(list);
  for (std::string each; std::getline(stream, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

}  // namespace

double cgroup_cores(std::string_view membership, const std::filesystem::path& mounts) {
  double cores = kNoLimit;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {  // number:controllers:/group
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool newer = controllers.empty();
    if (!newer && !has_word(controllers, "cpu")) continue;
    const std::filesystem::path root = newer ? mounts : mounts / "cpu";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    while (true) {  // inside a container the path may be the host's, and the root the container's own
      cores = std::min(cores, newer ? limit_of(root / group) : old_limit_of(root / group));
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return cores;
}

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cores = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  std::ifstream stream("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(stream), {}};
  const double granted = cgroup_cores(membership, "/sys/fs/cgroup");
  return granted < cores ? std::max(1u, static_cast<std::uint32_t>(granted)) : cores;
}

}  // namespace shale
