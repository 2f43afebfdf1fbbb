#include "scheduling/schedulers.h"

#include <fmt/ranges.h>

namespace shale {
namespace {

struct Row {
  std::string_view name;
  bool reads_cache;
  std::unique_ptr<Scheduler> (*make)(const SchedulerOptions&, PrefixLookup&);
};

#define SHALE_ROW(name, reads_cache) Row{#name, reads_cache, make_##name},
constexpr Row kSchedulers[] = {SHALE_SCHEDULERS(SHALE_ROW)};
#undef SHALE_ROW

}  // namespace

std::vector<std::string_view> scheduler_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kSchedulers) names.push_back(row.name);
  return names;
}

bool scheduler_reads_cache(std::string_view name) {
  for (const Row& row : kSchedulers) {
    if (row.name == name) return row.reads_cache;
  }
  return false;
}

Result<std::unique_ptr<Scheduler>> make_scheduler(std::string_view name, const SchedulerOptions& options,
                                                  PrefixLookup& cache) {
  for (const Row& row : kSchedulers) {
    if (row.name == name) return row.make(options, cache);
  }
  return fail(ErrorCode::kInvalidArgument, "no scheduler '{}'; there are {}", name, fmt::join(scheduler_names(), ", "));
}

}  // namespace shale
