// Work behind the calls that waits for tiers: removing, discovering.
#include <algorithm>
#include <limits>
#include <utility>

#include "store/store_core.h"

namespace shale {
namespace {

using Progress = StoreJob::Progress;

// Tries to remove an extent's blobs, or an object of the owner's own, once.
class RemoveJob final : public StoreJob {
 public:
  RemoveJob(StoreCore& core, std::uint32_t tier, Removal removal)
      : core_(core), tier_(tier), removal_(std::move(removal)) {
    ++core.tiers[tier].changes;
  }

  std::optional<std::uint32_t> waits_on() const override { return core_.keeper_of(tier_); }
  Progress step(Executor&) override {
    TierState& state = core_.tiers[tier_];
    const BlobOwner& owner = removal_.owner;
    if (is_written()) return Progress::kWaiting;
    const bool is_to_be_told = !removal_.told && owner.tag != 0 && core_.options.events_max > 0;
    if (!manifest_read_ && is_to_be_told) manifest_read_ = state.tier().read(manifest_blob(owner.tag, owner.name));
    if (manifest_read_ && !manifest_read_->ready()) return Progress::kWaiting;
    if (manifest_read_) tell();
    if (rests()) return Progress::kDone;
    core_.flush_log(tier_);  // that it is not to be found, before it goes
    const Status removed = remove_extent(state.tier(), owner.name, owner.tag);
    const std::lock_guard lock(core_.mutex);
    --state.changes;
    const ErrorCode why = removed ? ErrorCode::kInternal : removed.error().code;
    if (why == ErrorCode::kIo || (why == ErrorCode::kBusy && !state.tier().read_only())) {
      state.removals.owe(std::move(removal_), core_.clock.now_s(), removed.error().message);
      return Progress::kDone;
    }
    state.removals.end(owner.name);
    if (removed) {  // else what is left is settled when this store has died
      core_.log_settled(tier_, owner);
      state.own_objects.erase(owner.name);
    }
    if (!state.config.folder.empty()) state.doubtful.push_back(owner);
    core_.remove_owed(tier_);
    return Progress::kDone;
  }

 private:
  bool is_written() const {
    const std::lock_guard lock(core_.mutex);
    return core_.tiers[tier_].writing.contains(removal_.owner.name);
  }

  // Whether it is owed without a try.
  bool rests() {
    const std::lock_guard lock(core_.mutex);
    TierState& state = core_.tiers[tier_];
    const double now_s = core_.clock.now_s();
    if (!state.removals.rests(removal_.owner.name, now_s)) return false;
    --state.changes;
    state.removals.owe(std::move(removal_), now_s);
    return true;
  }

  // At the next try where the manifest cannot be read now.
  void tell() {
    const auto bytes = std::exchange(manifest_read_, nullptr)->take();
    removal_.told = bytes || (bytes.error().code != ErrorCode::kIo && bytes.error().code != ErrorCode::kBusy);
    if (!bytes) return;
    const auto manifest = ExtentManifest::parse((*bytes)->bytes());
    if (manifest) core_.tell(StoreEvent::Kind::kRemoved, tier_, removal_.tenant, *manifest);
  }

  StoreCore& core_;
  const std::uint32_t tier_;
  Removal removal_;
  std::shared_ptr<TierRead> manifest_read_;
};

// Finds the manifests of all extents that begin with chunks, then how much of the lossy ones is there. Where a tier
// answers for many chunks as soon as for one, those of all questions that wait, and all that are ahead, are asked for
// together: an extent may begin with every block, or, where that were too many guesses, with every chunk.
class DiscoverJob final : public StoreJob {
 public:
  explicit DiscoverJob(StoreCore& core) : core_(core) {
    for (std::uint32_t t = core.tier_count(); t-- > 0;) {
      if (!core.tiers[t].config.shared) continue;
      tier_ = first_shared_ = t;
      const AskedAtOnce at_once = core.tiers[t].tier().asked_at_once();
      at_once_ = {std::min(at_once_.objects, at_once.objects), std::min(at_once_.guesses, at_once.guesses)};
    }
  }

  std::optional<std::uint32_t> waits_on() const override { return first_shared_; }
  Progress step(Executor&) override {
    if (chains_.empty() && !take()) return Progress::kDone;
    const bool ready = std::ranges::all_of(reads_, [](const Reading& reading) { return reading.read->ready(); });
    if (!ready) return Progress::kWaiting;
    if (!reads_.empty()) note_all();
    while (tier_ < core_.tier_count() && !core_.tiers[tier_].config.shared) ++tier_;
    if (tier_ == core_.tier_count()) return next_chunks();
    look();
    if (reads_.empty()) ++tier_;
    return Progress::kWorked;
  }

 private:
  struct Asked {
    std::uint64_t tag = 0;
    std::size_t chain = 0;
  };
  struct Reading {
    Asked asked;
    std::shared_ptr<TierRead> read;
  };
  struct Found {
    std::size_t chain = 0;
    ExtentFacts facts;
    ExtentManifest manifest;
    std::uint64_t manifest_bytes = 0;
  };

  // Questions, as many as are asked at once; another job takes the others. False where none waits.
  bool take() {
    const std::lock_guard lock(core_.mutex);
    if (core_.closing()) return false;
    while (chains_.size() < at_once_.objects) {
      auto question = core_.asked.take();
      if (!question) break;
      chains_.push_back(std::move(*question));
    }
    if (core_.asked.waiting()) core_.add_job(make_discover_job(core_));
    ask();
    return !chains_.empty();
  }

  // Asks for each chain's next chunk, which was begun; then for what is ahead, within bounds. With the mutex held.
  void ask() {
    const double now_s = core_.clock.now_s();
    for (std::size_t i = 0; i < chains_.size(); ++i) asked_.push_back({chains_[i].tag(chains_[i].block), i});
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const ChainQuestion& chain = chains_[i];
      const std::size_t ahead = chain.keys.size() - chain.block - 1;
      const std::uint32_t stride = asked_.size() + ahead <= at_once_.guesses ? 1 : core_.chunk_blocks();
      for (std::uint32_t block = chain.block + stride; block < chain.keys.size(); block += stride) {
        if (asked_.size() >= at_once_.objects) return;
        const std::uint64_t tag = chain.tag(block);
        if (core_.asked.lately(tag, now_s)) continue;
        core_.asked.begin(tag);
        asked_.push_back({tag, i});
      }
    }
  }

  void look() {
    Tier& tier = core_.tiers[tier_].tier();
    std::vector<Hash128> objects;
    for (const Asked& asked : asked_) objects.push_back(manifests_object(asked.tag));
    const auto there = tier.parts_of(objects);
    answered_ = answered_ && there.has_value();
    if (!there) return;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      for (const std::uint32_t part : (*there)[i]) {
        const BlobId id{objects[i], part};
        if (is_manifest(id)) reads_.push_back({asked_[i], tier.read(id)});
      }
    }
  }

  void note_all() {
    std::vector<Found> found, lossy;
    for (const Reading& reading : std::exchange(reads_, {})) {
      auto bytes = reading.read->take();
      auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
      const auto& [tag, chain] = reading.asked;
      const Hash128& realm = chains_[chain].realm;
      if (!manifest || manifest->tenant != realm || manifest->name_space != core_.name_space ||
          manifest->chunk_tokens != core_.options.chunk_tokens) {
        continue;
      }
      ExtentFacts facts = facts_of(*manifest, realm, 1, 0);
      if (facts.tags.front() != tag) continue;
      (facts.exact ? found : lossy).push_back({chain, std::move(facts), std::move(*manifest), (*bytes)->size()});
    }
    note_keep(lossy);
    std::ranges::move(lossy, std::back_inserter(found));
    const std::lock_guard lock(core_.mutex);
    for (Found& one : found) note(one);
    ++tier_;
  }

  // How much of a lossy extent lies there is told by which parts do.
  void note_keep(std::vector<Found>& lossy) const {
    if (lossy.empty()) return;
    std::vector<Hash128> names;
    for (const Found& one : lossy) names.push_back(one.facts.name);
    const auto there = core_.tiers[tier_].tier().parts_of(names);
    for (std::size_t i = 0; i < lossy.size(); ++i) {
      const auto is_there = [&](std::uint32_t part) {
        return there && std::ranges::find((*there)[i], part) != (*there)[i].end();
      };
      lossy[i].facts.keep = static_cast<float>(keep_there(lossy[i].manifest, is_there).value_or(0));
      lossy[i].facts.quality = 0;
    }
    std::erase_if(lossy, [](const Found& one) { return one.facts.keep == 0; });
  }

  // With the mutex held.
  void note(Found& found) {
    if (core_.tiers[tier_].is_removed(found.facts.name)) return;
    if (const auto& quality = core_.options.placement.quality_found; quality && !found.facts.exact) {
      found.facts.quality = static_cast<float>(quality(found.manifest.method, grid_keep(found.facts.keep)));
    }
    found.facts.bytes = bytes_at_rest(found.manifest, found.facts.keep, found.manifest_bytes);
    found.facts.accessed_s = core_.wall_s();
    const auto id = core_.index.add(found.facts, chains_[found.chain].realm_number);
    if (!id || core_.index.at(*id).on(tier_)) return;
    core_.hold_no_more(*id, found.facts);
    core_.set_on(*id, tier_);
    ++core_.counts.discovered_extents;
    core_.manifests.put(found.facts.name, std::make_shared<ExtentManifest>(std::move(found.manifest)),
                        found.manifest_bytes);
  }

  // The next chunks of chains that go on where what was found ends.
  Progress next_chunks() {
    const std::lock_guard lock(core_.mutex);
    const double now_s = core_.clock.now_s();
    for (const Asked& asked : std::exchange(asked_, {})) core_.asked.end(asked.tag, now_s, answered_);
    if (core_.closing()) return Progress::kDone;
    answered_ = true;
    SpanFilter anything;
    anything.exact = false;
    anything.wall_s = core_.wall_s();
    for (ChainQuestion& chain : std::exchange(chains_, {})) {
      const auto spans = core_.index.match(chain.keys, chain.realm, anything);
      const std::uint32_t end = spans.empty() ? 0 : spans.back().first_block + spans.back().blocks;
      const bool goes_on = end > chain.block && end < chain.keys.size();
      if (!goes_on || core_.asked.lately(chain.tag(end), now_s)) continue;
      core_.asked.begin(chain.tag(end));
      chain.block = end;
      chains_.push_back(std::move(chain));
    }
    core_.signal();
    tier_ = first_shared_;
    ask();
    return chains_.empty() ? Progress::kDone : Progress::kWorked;
  }

  StoreCore& core_;
  std::uint32_t first_shared_ = 0;  // there is one
  AskedAtOnce at_once_ = {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()};
  std::vector<ChainQuestion> chains_;
  std::vector<Asked> asked_;  // chunks, for which tier_ is asked
  bool answered_ = true;      // by all tiers
  std::uint32_t tier_ = 0;
  std::vector<Reading> reads_;
};

}  // namespace

std::shared_ptr<StoreJob> make_remove_job(StoreCore& core, std::uint32_t tier, Removal removal) {
  return std::make_shared<RemoveJob>(core, tier, std::move(removal));
}

std::shared_ptr<StoreJob> make_discover_job(StoreCore& core) { return std::make_shared<DiscoverJob>(core); }

}  // namespace shale
