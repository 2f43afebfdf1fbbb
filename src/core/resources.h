// What of the machine this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <vector>

namespace shale {

// Cores of this process's affinity, within the limits of its control groups; at least 1.
std::uint32_t usable_cores();
// Bytes of memory that the machine has, within the limits of this process's control groups.
std::uint64_t usable_memory();

// For how long this thread's cores have been idle, added up, since the machine began; nothing where the kernel does not
// say. It counts in hundredths of a second.
std::optional<double> idle_core_seconds();
// By what /proc/stat says, of the cores that are `used`, by their numbers.
std::optional<double> idle_core_seconds(std::istream& stat, const std::vector<bool>& used);

// What control groups grant, each the least of itself and those above it: cores' worth of time, and bytes of memory;
// infinite without a limit. `membership` is what /proc/self/cgroup says, `mounts` the folder below which the groups lie
// (version 2 itself there, of version 1 the controllers `cpu` and `memory`).
double cgroup_cores(std::string_view membership, const std::filesystem::path& mounts);
double cgroup_memory(std::string_view membership, const std::filesystem::path& mounts);

}  // namespace shale
