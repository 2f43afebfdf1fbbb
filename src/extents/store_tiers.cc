#include "extents/store_tiers.h"

#include <utility>

namespace shale {

bool is_shared(const TierSpec& spec) { return spec.scheme != "memory" && spec.scheme != "file"; }

Result<std::vector<StoreTier>> open_store_tiers(const std::vector<std::string_view>& urls, const Clock& clock) {
  SHALE_ASSIGN(const auto specs, parse_tiers(urls));
  return open_store_tiers(specs, clock);
}

Result<std::vector<StoreTier>> open_store_tiers(const std::vector<TierSpec>& specs, const Clock& clock) {
  std::vector<StoreTier> tiers;
  for (const TierSpec& spec : specs) {
    StoreTier opened;
    if (spec.scheme == "file") {
      DiskTierOptions disk{.folder = spec.place, .capacity_bytes = spec.capacity_bytes, .several_writers = true};
      disk.direct_io = spec.flag("direct_io");
      disk.io_uring = spec.flag("io_uring");
      disk.sync = spec.flag("sync");
      disk.name = spec.name;
      disk.late = spec.late;
      SHALE_ASSIGN(opened.tier, make_disk_tier(disk, clock));
      if (spec.throttle) opened.tier = make_throttled_tier(std::move(opened.tier), *spec.throttle, clock);
      opened.folder = spec.place;
      opened.late = spec.late;
      opened.sync = disk.sync;
    } else {
      SHALE_ASSIGN(opened.tier, make_tier(spec, clock));
      opened.shared = is_shared(spec);
    }
    tiers.push_back(std::move(opened));
  }
  return tiers;
}

}  // namespace shale
