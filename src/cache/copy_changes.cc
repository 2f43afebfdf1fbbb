#include "cache/copy_changes.h"

#include <algorithm>

namespace shale {

void count_failure(CacheStats& stats, const Error& error) {
  ++(error.code == ErrorCode::kFull ? stats.refused_full : stats.failed_writes);
}

void register_copy(Entry& entry, std::uint32_t tier, const ObjectBytes& object) {
  const Hash128 name = object.manifest->name();
  const auto known = std::ranges::find_if(
      entry.objects, [&](const StoredObject& other) { return other.tier == tier && other.name() == name; });
  if (known == entry.objects.end()) {
    entry.objects.push_back({tier, object.manifest, object.strata, object.bits});
  } else if (known->bits == object.bits) {
    known->strata = std::max(known->strata, object.strata);
  } else {
    known->strata = object.strata;
    known->bits = object.bits;
  }
}

void cut_copy(JobContext& context, Entry& entry, const CopyCut& cut) {
  StoredObject* object = entry.find(cut.method, cut.tier);
  Tier& tier = *context.tiers[cut.tier];
  if (!object || tier.read_only()) return;
  const std::uint32_t strata = std::min(object->strata, cut.strata);
  const Bits bits = object->bits == Bits::kBase ? Bits::kBase : cut.bits;
  if (strata == object->strata && bits == object->bits) return;
  const Status status =
      strata == 0 ? remove_object(tier, object->name()) : remove_chunks(tier, *object->manifest, strata, bits);
  if (!status) return count_failure(context.stats, status.error());
  if (strata == 0) {
    ++context.stats.drops;
    entry.forget(object->name(), cut.tier);
  } else {
    ++context.stats.presses;
    object->strata = strata;
    object->bits = bits;
  }
}

}  // namespace shale
