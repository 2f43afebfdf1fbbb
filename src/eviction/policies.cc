#include "eviction/policies.h"

#include <fmt/ranges.h>

#include <array>

namespace shale {
namespace {

struct PolicyEntry {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(const EvictionOptions& options);
};

#define SHALE_ENTRY(name) PolicyEntry{#name, make_##name},
constexpr auto kPolicies = std::to_array<PolicyEntry>({SHALE_EVICTION_POLICIES(SHALE_ENTRY)});
#undef SHALE_ENTRY

}  // namespace

std::vector<std::string_view> eviction_policy_names() {
  std::vector<std::string_view> names;
  for (const PolicyEntry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name, const EvictionOptions& options) {
  for (const PolicyEntry& entry : kPolicies) {
    if (entry.name == name) return entry.make(options);
  }
  return fail(ErrorCode::kInvalidArgument, "'{}' is not an eviction policy: there are {}", name,
              fmt::join(eviction_policy_names(), ", "));
}

}  // namespace shale
