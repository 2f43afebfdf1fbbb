// What the placement decides, carried out: deletions of importance tiers.
#include <algorithm>
#include <bit>
#include <utility>

#include "extents/extent_io.h"
#include "store/store_core.h"

namespace shale {
namespace {

using Progress = StoreJob::Progress;

// Deletes the importance tiers beyond a keep, on every tier where the extent lies and that this store may change.
class TrimJob final : public StoreJob {
 public:
  TrimJob(StoreCore& core, GroupId group, ExtentId id, const Variant& to)
      : core_(core), group_(group), id_(id), to_(to), since_s_(core.clock.now_s()) {
    core.use(id);
  }
  std::optional<std::uint32_t> waits_on() const override {
    const auto slowest = static_cast<std::uint32_t>(std::bit_width(core_.index.at(id_).tiers)) - 1;
    return slowest < core_.tier_count() ? core_.keeper_of(slowest) : std::nullopt;
  }

  Progress step(Executor&) override {
    if (!manifest_) return read();
    {
      const std::lock_guard lock(core_.mutex);
      name_ = core_.index.at(id_).name;
      const bool others_read = core_.index.at(id_).uses > 1;
      // A copy that a save is writing has all parts, and would be counted as if it had not.
      const bool copied =
          std::ranges::any_of(core_.tiers, [&](const TierState& tier) { return tier.writing.contains(name_); });
      const bool patient = core_.clock.now_s() < since_s_ + kPatienceS && !core_.closing();
      if ((others_read || copied) && patient) return Progress::kWaiting;
      if (copied || core_.index.at(id_).tiers == 0) return end(false);
      old_keep_ = core_.index.at(id_).keep;
      core_.resize(id_, static_cast<float>(to_.keep), bytes_at_rest(*manifest_, to_.keep, manifest_bytes_));
      for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
        if (!core_.index.at(id_).on(t) || !core_.placer.may_remove(t)) continue;
        core_.log_stored(id_, t);
        ++core_.tiers[t].changes;
        tiers_.push_back(t);
      }
    }
    for (const std::uint32_t t : tiers_) {
      core_.flush_log(t);  // that it has fewer, before they go
      delete_parts(core_.tiers[t].tier());
    }
    const std::lock_guard lock(core_.mutex);
    for (const std::uint32_t t : tiers_) --core_.tiers[t].changes;
    return end(true);
  }

 private:
  Progress read() {
    const std::lock_guard lock(core_.mutex);
    const Extent& extent = core_.index.at(id_);
    if (!manifest_read_) {
      Tier& tier = core_.tiers[extent.tiers == 0 ? 0 : extent.fastest_tier()].tier();
      manifest_read_ = tier.read(manifest_blob(extent.names[0], extent.name));
    }
    if (!manifest_read_->ready()) return Progress::kWaiting;
    const auto bytes = manifest_read_->take();
    auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
    if (!manifest) return end(false);
    manifest_ = std::move(*manifest);
    manifest_bytes_ = (*bytes)->size();
    return Progress::kWorked;
  }

  void delete_parts(Tier& tier) {
    const auto kept = stored_parts(*manifest_, to_.keep);
    for (const std::uint32_t part : stored_parts(*manifest_, old_keep_)) {
      if (!std::ranges::binary_search(kept, part)) (void)tier.remove({name_, part});
    }
  }

  // With the core's mutex held.
  Progress end(bool done) {
    core_.unuse(id_);
    core_.placer.finish(group_, to_, done);
    return Progress::kDone;
  }

  StoreCore& core_;
  const GroupId group_;
  const ExtentId id_;
  const Variant to_;
  const double since_s_;
  std::shared_ptr<TierRead> manifest_read_;
  std::optional<ExtentManifest> manifest_;
  std::uint64_t manifest_bytes_ = 0;
  Hash128 name_;
  double old_keep_ = 1;
  std::vector<std::uint32_t> tiers_;
};

}  // namespace

std::shared_ptr<StoreJob> make_trim_job(StoreCore& core, GroupId group, ExtentId id, const Variant& to) {
  return std::make_shared<TrimJob>(core, group, id, to);
}

}  // namespace shale
