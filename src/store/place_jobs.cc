// What the placement decides, carried out: copies, and encodings by other methods.
#include <algorithm>
#include <utility>

#include "extents/extent_transcoder.h"
#include "store/store_core.h"

namespace shale {
namespace {

using Progress = StoreJob::Progress;

constexpr double kLentPatienceS = 15;  // for room, of what has lent its own to others

// Reads what the variant can be made of, makes it, writes it, and then lets go of what the group gives up.
class PlaceJob final : public StoreJob {
 public:
  PlaceJob(StoreCore& core, GroupId group, const Variant& to)
      : core_(core), group_(group), to_(to), method_(core.placer.method(to.method)), since_s_(core.clock.now_s()) {}

  // For an exact extent that lies nowhere yet.
  PlaceJob(StoreCore& core, GroupId group, const Variant& to, ExtentId exact, std::shared_ptr<const ExtentBlobs> blobs,
           std::shared_ptr<std::optional<bool>> made)
      : PlaceJob(core, group, to) {
    made_ = std::move(made);
    from_ = to.tier;
    blobs_ = std::move(blobs);
    take(exact);
  }

  Progress step(Executor& executor) override {
    // What was given up for room would be lost.
    if (core_.closing() && phase_ != Phase::kWrite && !dropped_for_room_) return end(false);
    if (phase_ == Phase::kBegin) return begin();
    if (phase_ == Phase::kWrite) return write();
    if (phase_ == Phase::kCut) return cut();
    const auto made = no_memory_is_an_error([&]() -> Result<Progress> { return make(executor); });
    return made ? *made : end(false);
  }

 private:
  enum class Phase { kStart, kRead, kTranscode, kBegin, kWrite, kCut };

  // Whether the source lies nowhere yet.
  bool in_hand() const { return made_ != nullptr; }

  // With the mutex held.
  void take(ExtentId source) {
    source_ = source;
    core_.use(source);
    facts_ = core_.index.facts(source);
    version_ = core_.index.at(source).version;
    realm_ = core_.index.at(source).realm;
  }

  Progress go_on(Phase next) {
    phase_ = next;
    since_s_ = core_.clock.now_s();
    return Progress::kWorked;
  }
  bool in_time() const { return core_.clock.now_s() < since_s_ + kPatienceS; }

  Progress end(bool made) {
    const std::lock_guard lock(core_.mutex);
    let_go();
    return conclude(made);
  }
  // With the mutex held.
  Progress conclude(bool made) {
    core_.placer.finish(group_, to_, made);
    if (made_) *made_ = made;
    return Progress::kDone;
  }
  void let_go() {
    if (staged_) --*std::exchange(staged_, nullptr);
    if (lent_ > 0) core_.tiers[from_].tier().count_others(static_cast<std::int64_t>(std::exchange(lent_, 0)));
    if (source_) core_.unuse(*std::exchange(source_, std::nullopt));
  }

  bool hangs() const { return !rescued_ && core_.placer.hangs(group_); }  // what is rescued has left what hangs

  // What hangs holds up no other move: it has no share of what these have, nor is it the one that always goes on.
  Progress wait() {
    const std::lock_guard lock(core_.mutex);
    if (!hangs()) return Progress::kWaiting;
    share_.turn_into(StagedFor::kHanging);
    if (staged_) --*std::exchange(staged_, nullptr);
    return Progress::kWaiting;
  }

  // In memory alone.
  Progress make(Executor& executor) {
    return phase_ == Phase::kStart ? start() : phase_ == Phase::kRead ? read() : transcode(executor);
  }

  Progress start() {
    std::unique_lock lock(core_.mutex);
    if (in_hand()) {
      share_ = core_.staging.take(StagedFor::kBecoming, 2 * facts_.bytes);
      if (!share_) return Progress::kWaiting;
      lock.unlock();
      return use_read();
    }
    if (hangs()) return Progress::kWaiting;
    if (to_.tier == kDropped) return go_on(Phase::kCut);
    const auto same = core_.placer.holder(group_, to_.method, to_.keep);
    if (same && core_.index.at(*same).on(to_.tier)) return go_on(Phase::kCut);
    const auto source = same ? same : core_.placer.exact(group_);
    if (!source) return conclude(false);
    as_is_ = same.has_value();
    const Extent& extent = core_.index.at(*source);
    // A save is writing it there.
    if (as_is_ && in_time() && core_.tiers[to_.tier].writing.contains(extent.name)) return Progress::kWaiting;
    const std::uint64_t needed = as_is_ ? extent.bytes : 3 * extent.bytes;  // read, decoded and encoded
    from_ = extent.fastest_tier();
    // One always goes on each way: what others hold waits for room that it makes.
    unsigned& alike = core_.tiers[to_.tier].moves_staged[to_.tier > from_ ? 0 : to_.tier == from_ ? 1 : 2];
    share_ = core_.staging.take(StagedFor::kMoves, needed, alike == 0);
    if (!share_) return Progress::kWaiting;
    ++*(staged_ = &alike);
    take(*source);
    reader_ = std::make_unique<ExtentReader>(core_.tiers[from_].tier(), extent.name, extent.names[0],
                                             as_is_ ? to_.keep : 1, as_is_);  // else it is verified as it is decoded
    return go_on(Phase::kRead);
  }

  Progress read() {
    if (!reader_->poll()) return wait();
    auto blobs = reader_->finish();
    if (!blobs) return lose(blobs.error(), reader_->damaged_chunks());
    blobs_ = std::move(*blobs);
    return use_read();
  }

  Progress use_read() {
    auto manifest = ExtentManifest::parse(blobs_->manifest->bytes());
    if (!manifest) return lose(manifest.error(), ~0u);
    manifest_ = std::move(*manifest);
    if (as_is_) {
      facts_.keep = static_cast<float>(to_.keep);
      facts_.bytes = bytes_at_rest(manifest_, to_.keep, blobs_->manifest->size());
      return go_on(Phase::kBegin);
    }
    if (manifest_.name_space != core_.name_space || manifest_.geometry != core_.options.geometry) return end(false);
    auto transcoder = ExtentTranscoder::start(std::move(manifest_), blobs_, method_,
                                              {.scorers = core_.options.scorers,
                                               .model = core_.options.model,
                                               .tables = core_.options.tables,
                                               .buffers = core_.buffers.get()});
    if (!transcoder) return end(false);
    transcoder_.emplace(std::move(*transcoder));
    return go_on(Phase::kTranscode);
  }

  // What was read is not as it was written, or not there: those chunks of it.
  Progress lose(const Error& error, std::uint32_t chunks) {
    if (!in_hand()) core_.report(*source_, version_, from_, error.code, chunks);
    return end(false);
  }

  Progress transcode(Executor& executor) {
    const double began_s = core_.clock.now_s();
    const Result<bool> more = transcoder_->step(executor);
    if (more && !*more) take_made(transcoder_->finish());
    core_.encode_seconds += core_.clock.now_s() - began_s;
    if (more && *more) return Progress::kWorked;
    if (transcoder_->ranking_damaged()) {
      const std::lock_guard lock(core_.mutex);  // it is not tried again
      core_.counts.damaged_rankings += core_.index.lose_ranking(*source_, method_.ranking());
    }
    const std::uint32_t failed = transcoder_->failed_chunks();
    transcoder_.reset();
    if (!more) return failed != 0 ? lose(more.error(), failed) : end(false);
    share_.turn_into(in_hand() ? StagedFor::kSaves : StagedFor::kMoves, facts_.bytes);
    return go_on(Phase::kBegin);
  }

  void take_made(ExtentEncoder::Encoded encoded) {
    manifest_ = std::move(encoded.manifest);
    auto blobs = blobs_of(manifest_, std::move(encoded.parts), to_.keep, *core_.buffers);
    const ExtentFacts source = std::move(facts_);
    facts_ = facts_of(manifest_, manifest_.tenant, to_.keep, blobs->bytes());
    facts_.recompute_s = source.recompute_s;
    facts_.frequency = source.frequency;
    facts_.accessed_s = source.accessed_s;
    facts_.expires_s = source.expires_s;
    facts_.tags = source.tags;
    blobs->tag = source.tags.front();
    core_.encoded_bytes += facts_.bytes;
    blobs_ = std::move(blobs);
  }

  Progress begin() {
    std::unique_lock lock(core_.mutex);
    if (core_.tiers[to_.tier].writing.contains(blobs_->name) && in_time()) return Progress::kWaiting;
    if (core_.tiers[to_.tier].tier().silent()) return no_room(std::move(lock));
    if (!core_.has_room(to_.tier, facts_.bytes)) {
      const bool nobody_makes_it = core_.tiers[to_.tier].config.shared;
      if (std::exchange(waited_for_room_, true) && (nobody_makes_it || !room_may_come()))
        return no_room(std::move(lock));
      lend_place();
      const bool goes = nobody_makes_it ? goes_down() : gives_up_its_place();
      if (core_.placer.drop_for_room(group_, to_, goes, *source_)) {
        dropped_for_room_ = true;
        since_s_ = core_.clock.now_s();  // its room comes once it has been removed
      }
      return Progress::kWaiting;
    }
    if (!core_.begin_write(to_.tier, {blobs_->name, blobs_->tag}, facts_.bytes)) {
      if (in_time()) return Progress::kWaiting;
      lock.unlock();
      return end(false);
    }
    lock.unlock();
    logged_ = core_.flush_soon(to_.tier);
    return go_on(Phase::kWrite);
  }

  // Two extents that change places between full tiers each wait for the other's room: the one that goes down lets go
  // of its place first. In memory only its room goes to others, beside the copy that the job holds in any case: there
  // it is read until it lies below. What lies in files is not beyond a tier's capacity, and goes.
  bool goes_down() const { return to_.tier > from_ && !core_.index.at(*source_).pinned(core_.wall_s()); }
  void lend_place() {
    const Extent& source = core_.index.at(*source_);
    Tier& from = core_.tiers[from_].tier();
    if (lent_ > 0 || from.persistent() || !goes_down() || !source.on(from_)) return;
    lent_ = source.bytes;
    from.count_others(-static_cast<std::int64_t>(lent_));
  }
  bool gives_up_its_place() const {
    return goes_down() && core_.tiers[from_].tier().persistent() && core_.clock.now_s() > since_s_ + kPatienceS / 3;
  }

  // What has lent its place may have nowhere to stay, and waits longer while anything changes where it goes to.
  bool room_may_come() const {
    const bool patient = core_.clock.now_s() < since_s_ + kLentPatienceS && !core_.closing();
    const bool lent = lent_ > 0 && core_.index.at(*source_).on(from_);
    return in_time() || (lent && patient && core_.tiers[to_.tier].changes > 0);
  }

  // What finds no room below stays where it is. Where others have its room there, it goes further down or is lost.
  Progress no_room(std::unique_lock<std::mutex> lock) {
    const ExtentId source = *source_;
    const bool crowded = lent_ > 0 && goes_down() && !core_.has_room(from_, lent_);
    if (crowded && core_.index.at(source).on(from_) && goes_further_down()) return Progress::kWorked;
    core_.use(source);
    let_go();
    if (crowded && core_.index.at(source).on(from_)) core_.remove_from(source, from_);
    if (core_.index.at(source).tiers == 0 && !in_hand()) ++core_.counts.dropped_extents;
    core_.unuse(source);
    lock.unlock();
    return end(false);
  }

  // As it is, where nothing else is left of the group: begins anew with a tier that has room.
  bool goes_further_down() {
    if (!core_.placer.only_here(group_, *source_, from_)) return false;
    const std::uint64_t bytes = core_.index.at(*source_).bytes;
    for (std::uint32_t t = to_.tier + 1; t < core_.tier_count(); ++t) {
      if (core_.tiers[t].tier().read_only() || !core_.placer.has_room(t, bytes)) continue;
      to_ = as_is_ ? Variant{to_.method, to_.keep, t} : Variant{kFullMethod, 1, t};
      rescued_ = true;
      waited_for_room_ = false;
      let_go();
      share_ = {};
      blobs_.reset();
      go_on(Phase::kStart);
      return true;
    }
    return false;
  }

  Progress write() {
    if (!writer_ && !core_.flushed(to_.tier, logged_)) return wait();
    if (!writer_) writer_ = core_.go_on_writing(to_.tier, blobs_);
    if (!writer_) return end(false);
    if (!writer_->poll()) return wait();
    const Status written = writer_->status();
    bool taken = false;
    {
      const std::lock_guard lock(core_.mutex);
      core_.end_write(to_.tier, {blobs_->name, blobs_->tag}, written.has_value(), writer_->left());
      if (written) stored();
      taken = !written && written.error().code == ErrorCode::kFull && ++refusals_ < kRefusalsMax;
    }
    core_.flush_soon(to_.tier);
    if (taken) {  // others were faster
      writer_.reset();
      return go_on(Phase::kBegin);
    }
    if (!written) return end(false);
    share_ = {};
    blobs_.reset();
    return go_on(Phase::kCut);
  }

  void stored() {
    core_.tiers[to_.tier].counts.bytes_written += facts_.bytes;
    const bool removed =
        !in_hand() && !dropped_for_room_ && core_.index.at(*source_).tiers == 0;  // meanwhile, by somebody
    if (const auto& quality = core_.options.placement.quality; quality && !facts_.exact) {
      facts_.quality = static_cast<float>(quality(facts_.run, method_, to_.keep).value_or(0));
    }
    const auto id = core_.index.add(facts_, realm_);
    if (!id) return;
    core_.use(*id);
    core_.live_on(*id, facts_.expires_s);
    core_.resize(*id, facts_.keep, facts_.bytes);
    core_.set_on(*id, to_.tier);
    core_.log_stored(*id, to_.tier);
    core_.tell(StoreEvent::Kind::kStored, to_.tier, core_.index.realms()[realm_].tenant, manifest_);
    if (removed) core_.remove_from(*id, to_.tier);
    core_.unuse(*id);
  }

  Progress cut() {
    const std::lock_guard lock(core_.mutex);
    if (rescued_) {  // to where the placement did not want it: nothing is decided about it for a while
      if (source_ && core_.index.at(*source_).on(from_)) core_.remove_from(*source_, from_);
      let_go();
      return conclude(false);
    }
    let_go();
    if (core_.placer.being_read(group_, to_) && in_time() && !core_.closing()) return Progress::kWaiting;
    return conclude(true);
  }

  StoreCore& core_;
  const GroupId group_;
  Variant to_;
  const Method method_;
  Phase phase_ = Phase::kStart;
  double since_s_;  // when the phase began
  bool as_is_ = false, waited_for_room_ = false, dropped_for_room_ = false, rescued_ = false;
  std::shared_ptr<std::optional<bool>> made_ = {};  // to be told at the end; null: nobody waits for it
  std::optional<ExtentId> source_;                  // used until it has been read and its copy written
  std::uint8_t version_ = 0;                        // of that, when it was found
  std::uint32_t from_ = 0;
  std::uint64_t lent_ = 0;  // of the room that the source takes there
  std::uint16_t realm_ = 0;
  ExtentFacts facts_;  // of the source, then of what is made
  Staging::Share share_;
  unsigned* staged_ = nullptr;  // counts it while it holds one
  std::unique_ptr<ExtentReader> reader_;
  std::shared_ptr<const ExtentBlobs> blobs_;
  ExtentManifest manifest_;
  std::optional<ExtentTranscoder> transcoder_;
  std::uint64_t logged_ = 0;  // in the tier's log when the writing was
  std::unique_ptr<ExtentWriter> writer_;
  unsigned refusals_ = 0;  // of writes for which there had been room
};

}  // namespace

std::shared_ptr<StoreJob> make_place_job(StoreCore& core, GroupId group, const Variant& to) {
  return std::make_shared<PlaceJob>(core, group, to);
}

std::shared_ptr<StoreJob> make_become_job(StoreCore& core, GroupId group, const Variant& to, ExtentId exact,
                                          std::shared_ptr<const ExtentBlobs> blobs,
                                          std::shared_ptr<std::optional<bool>> made) {
  return std::make_shared<PlaceJob>(core, group, to, exact, std::move(blobs), std::move(made));
}

}  // namespace shale
