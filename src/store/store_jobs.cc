// Work behind the calls that waits for tiers: removing, discovering.
#include <algorithm>
#include <utility>

#include "store/store_core.h"

namespace shale {
namespace {

using Progress = StoreJob::Progress;

class RemoveJob final : public StoreJob {
 public:
  RemoveJob(StoreCore& core, std::uint32_t tier, const Extent& extent)
      : core_(core),
        tier_(tier),
        name_(extent.name),
        tag_(extent.names[0]),
        tenant_(core.index.realms()[extent.realm].tenant) {
    ++core.tiers[tier].changes;
    core.tiers[tier].removing.insert(name_);
  }

  std::optional<std::uint32_t> waits_on() const override {
    return core_.tiers[tier_].tier().persistent() ? std::optional(tier_) : std::nullopt;
  }
  Progress step(Executor&) override {
    Tier& tier = core_.tiers[tier_].tier();
    if (being_written()) return Progress::kWaiting;
    if (!manifest_read_ && core_.options.events_max > 0) manifest_read_ = tier.read(manifest_blob(tag_, name_));
    if (manifest_read_ && !manifest_read_->ready()) return Progress::kWaiting;
    tell();
    core_.flush_log(tier_);                  // that it is not to be found, before it goes
    (void)remove_extent(tier, name_, tag_);  // what is left has no manifest, and is settled when this store has died
    const std::lock_guard lock(core_.mutex);
    core_.log_settled(tier_, {name_, tag_});
    core_.tiers[tier_].removing.erase(name_);
    if (!core_.tiers[tier_].config.folder.empty()) core_.tiers[tier_].doubtful.push_back({name_, tag_});
    --core_.tiers[tier_].changes;
    return Progress::kDone;
  }

 private:
  bool being_written() const {
    const std::lock_guard lock(core_.mutex);
    return core_.tiers[tier_].writing.contains(name_);
  }

  void tell() {
    const auto bytes = manifest_read_ ? manifest_read_->take() : fail(ErrorCode::kNotFound, "not asked for");
    if (!bytes) return;
    const auto manifest = ExtentManifest::parse((*bytes)->bytes());
    if (!manifest) return;
    core_.events.push({StoreEvent::Kind::kRemoved, tier_, tenant_, manifest->parent, manifest->keys,
                       manifest->geometry.block_tokens});
  }

  StoreCore& core_;
  const std::uint32_t tier_;
  const Hash128 name_;
  const std::uint64_t tag_;
  const std::string tenant_;
  std::shared_ptr<TierRead> manifest_read_;
};

// One listing finds the manifests of all extents that begin with a chunk; each step asks one tier of one chunk.
class DiscoverJob final : public StoreJob {
 public:
  DiscoverJob(StoreCore& core, std::vector<BlockKey> keys, std::uint32_t first_block, const Hash128& realm,
              std::uint16_t realm_number)
      : core_(core),
        keys_(std::move(keys)),
        realm_(realm),
        realm_number_(realm_number),
        first_shared_(static_cast<std::uint32_t>(
            std::ranges::find_if(core.tiers, [](const TierState& tier) { return tier.config.shared; }) -
            core.tiers.begin())),
        block_(first_block) {
    core.asking.insert(tag());
  }

  std::optional<std::uint32_t> waits_on() const override { return first_shared_; }
  Progress step(Executor&) override {
    if (!reads_.empty()) {
      const bool ready = std::ranges::all_of(reads_, [](const auto& read) { return read->ready(); });
      if (!ready) return Progress::kWaiting;
      for (const auto& read : std::exchange(reads_, {})) note(read->take());
      ++tier_;
      return Progress::kWorked;
    }
    while (tier_ < core_.tier_count() && !core_.tiers[tier_].config.shared) ++tier_;
    if (tier_ == core_.tier_count()) return next_chunk();
    Tier& tier = core_.tiers[tier_].tier();
    const Hash128 object = manifests_object(tag());
    if (const auto parts = tier.parts(object)) {
      for (const std::uint32_t part : *parts) {
        if (is_manifest({object, part})) reads_.push_back(tier.read({object, part}));
      }
    }
    if (reads_.empty()) ++tier_;
    return Progress::kWorked;
  }

 private:
  std::uint64_t tag() const { return chunk_tag(keys_[block_], realm_); }

  void note(const Result<BlobBytes>& bytes) {
    auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
    if (!manifest || manifest->tenant != realm_ || manifest->name_space != core_.name_space) return;
    ExtentFacts facts = facts_of(*manifest, realm_, 1, 0);
    if (facts.tags.front() != tag()) return;
    // How much of a lossy extent lies there is told by which parts do.
    if (!facts.exact) {
      const auto there = core_.tiers[tier_].tier().parts(facts.name);
      if (!there) return;
      const auto keep =
          keep_there(*manifest, [&](std::uint32_t part) { return std::ranges::find(*there, part) != there->end(); });
      if (!keep) return;
      facts.keep = static_cast<float>(*keep);
      facts.quality = 0;
    }
    facts.bytes = bytes_at_rest(*manifest, facts.keep, (*bytes)->size());
    const std::lock_guard lock(core_.mutex);
    facts.accessed_s = core_.wall_s();
    const auto id = core_.index.add(facts, realm_number_);
    if (!id || core_.index.at(*id).on(tier_)) return;
    core_.set_on(*id, tier_);
    ++core_.counts.discovered_extents;
    core_.manifests.put(facts.name, std::make_shared<ExtentManifest>(std::move(*manifest)), (*bytes)->size());
  }

  Progress next_chunk() {
    const std::lock_guard lock(core_.mutex);
    core_.asking.erase(tag());
    core_.asked[tag()] = core_.clock.now_s();
    SegmentFilter anything;
    anything.exact = false;
    anything.wall_s = core_.wall_s();
    const auto segments = core_.index.match(keys_, realm_, anything);
    const std::uint32_t end = segments.empty() ? 0 : segments.back().first_block + segments.back().blocks;
    core_.signal();
    if (end <= block_ || end >= keys_.size()) return Progress::kDone;
    block_ = end;
    tier_ = 0;
    if (core_.recently_asked(tag())) return Progress::kDone;
    core_.asking.insert(tag());
    return Progress::kWorked;
  }

  StoreCore& core_;
  const std::vector<BlockKey> keys_;
  const Hash128 realm_;
  const std::uint16_t realm_number_;
  const std::uint32_t first_shared_;  // there is one
  std::uint32_t block_;
  std::uint32_t tier_ = 0;
  std::vector<std::shared_ptr<TierRead>> reads_;
};

}  // namespace

std::shared_ptr<StoreJob> make_remove_job(StoreCore& core, std::uint32_t tier, const Extent& extent) {
  return std::make_shared<RemoveJob>(core, tier, extent);
}

std::shared_ptr<StoreJob> make_discover_job(StoreCore& core, std::vector<BlockKey> keys, std::uint32_t first_block,
                                            const Hash128& realm, std::uint16_t realm_number) {
  return std::make_shared<DiscoverJob>(core, std::move(keys), first_block, realm, realm_number);
}

}  // namespace shale
