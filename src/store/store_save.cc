// A save: what is encoded goes into the index and is written (save_encode.cc: what comes before).
#include "store/store_save.h"

#include <algorithm>
#include <utility>

namespace shale {

SaveJob::SaveJob(StoreCore& core, Plan plan, std::shared_ptr<StoreSave::State> handle)
    : core_(core), plan_(std::move(plan)), handle_(std::move(handle)) {
  if (!plan_.hints.method.scorer.empty()) {
    to_rank_.push_back(plan_.hints.method.ranking());
  } else if (plan_.hints.method.is_full() && !core.options.geometry.opaque()) {
    to_rank_ = plan_.hints.rankings;
    std::ranges::sort(to_rank_);
    to_rank_.erase(std::ranges::unique(to_rank_).begin(), to_rank_.end());
  }
}

SaveJob::~SaveJob() = default;

StoreJob::Progress SaveJob::step(Executor& executor) {
  if (handle_->cancelled && (encoder_ || next_ < plan_.pieces.size())) {
    give_up(fail(ErrorCode::kCancelled, "the save was cancelled"));
  }
  bool worked = false;
  for (Writing& writing : writings_) {
    worked = advance(writing) || worked;
    if (!writing.over || !writing.id) continue;
    const std::lock_guard lock(core_.mutex);
    core_.tenant(plan_.hints.tenant).bytes_promised -= writing.promised;
    core_.unuse(*writing.id);
  }
  std::erase_if(writings_, [](const Writing& writing) { return writing.over; });
  worked = encode(executor) || worked;
  if (encoder_ || next_ < plan_.pieces.size() || !writings_.empty()) {
    return worked ? Progress::kWorked : Progress::kWaiting;
  }
  return Progress::kDone;
}

// The rest is not encoded. What has been is written all the same.
void SaveJob::give_up(Status status) {
  {
    const std::lock_guard reading(handle_->view_mutex);
    ranker_.reset();
    encoder_.reset();
  }
  encoder_share_ = {};
  const std::size_t rest = plan_.pieces.size() - next_;
  {
    const std::lock_guard lock(core_.mutex);
    if (status.error().code != ErrorCode::kCancelled) core_.counts.extents_failed += rest;
    for (; next_ < plan_.pieces.size(); ++next_) forget_saving(core_, plan_, plan_.pieces[next_]);
  }
  if (status_) status_ = std::move(status);
  handle_->set_released();
  count_placed(rest);
}

// True when it did something.
bool SaveJob::advance(Writing& writing) {
  if (writing.becoming) return became(writing);
  if (!writing.writer) return writing.begun ? start_writing(writing) : begin(writing);
  if (!writing.writer->poll()) return false;
  const Status status = writing.writer->status();
  auto left = std::exchange(writing.writer, nullptr)->left();
  writing.begun = false;
  const std::uint32_t tier = writing.tier;
  std::unique_lock lock(core_.mutex);
  core_.end_write(tier, {writing.facts.name, writing.blobs->tag}, status.has_value(), std::move(left));
  if (status) core_.tiers[tier].counts.bytes_written += writing.facts.bytes;
  if (status) {
    stored(writing, std::move(lock));
  } else {
    const bool taken = status.error().code == ErrorCode::kFull && ++writing.refusals < kRefusalsMax;
    writing.since_s = core_.clock.now_s();
    lock.unlock();
    writing.over = writing.stored;  // it lies on the first tier
    if (!writing.stored && !taken) failed(writing, status);
    // Else others were faster: begin() waits for room again.
  }
  core_.flush_soon(tier);
  return true;
}

// To where the placement wants it. True where nothing is left to write. With the mutex held, which it may give up.
bool SaveJob::place(Writing& writing, std::unique_lock<std::mutex>& lock) {
  if (const Extent& extent = core_.index.at(*writing.id); extent.tiers != 0) {  // somebody else has saved the same
    writing.tier = extent.fastest_tier();
    stored(writing, std::move(lock));
    return true;
  }
  if (!admit(writing)) {
    ++core_.tenant(plan_.hints.tenant).counts.refused;
    return refuse(writing, lock,
                  fail(ErrorCode::kFull, "{} bytes more are more than tenant {} may have", writing.facts.bytes,
                       plan_.hints.tenant));
  }
  const Variant placed = core_.placer.place_new(*writing.id, may_become() && !core_.placer.crowded());
  writing.tier = placed.tier;
  if (writing.tier != kDropped && writing.facts.exact && placed.method != kFullMethod) {
    writing.becoming = core_.placer.become(*writing.id, writing.blobs);
    return true;
  }
  // A form that was asked for lies beside what has the blocks' place, until room is short: nothing is demoted for it,
  // but what is on its way from there may leave room.
  const std::uint32_t last = core_.tier_count() - 1;
  const bool leaves = !core_.tiers[last].removing.empty() || core_.tiers[last].changes > 0;
  const bool fits = (leaves && !core_.tiers[last].tier().silent()) || core_.has_room(last, writing.facts.bytes);
  if (writing.tier == kDropped && !writing.facts.exact && fits) writing.tier = last;
  if (writing.tier != kDropped) return false;
  return refuse(writing, lock, no_room(writing, "that are worth so little"));
}

bool SaveJob::refuse(Writing& writing, std::unique_lock<std::mutex>& lock, Status why) {
  lock.unlock();
  writing.tier = core_.tier_count();
  failed(writing, std::move(why));
  return true;
}

// With the mutex held. Where tiers are in trouble, or still counted, it is mostly theirs that is missing.
Status SaveJob::no_room(const Writing& writing, std::string_view which) const {
  std::string why = fmt::format("no tier has room for {} bytes {}", writing.facts.bytes, which);
  for (const TierState& tier : core_.tiers) {
    if (const std::string reason = tier.without_room(); !reason.empty())
      why += fmt::format("; {}: {}", tier.tier().name(), reason);
  }
  return fail(ErrorCode::kFull, "{}", why);
}

// Where the placement wants it, once there is room; on the next tier where that takes too long.
bool SaveJob::begin(Writing& writing) {
  const auto patient = [&] { return core_.clock.now_s() < writing.since_s + kPatienceS && !core_.closing(); };
  std::unique_lock lock(core_.mutex);
  if (!writing.placed) {
    if (!writing.id) {
      writing.id = core_.index.add(writing.facts, plan_.realm_number);
      if (!writing.id) return refuse(writing, lock, fail(ErrorCode::kFull, "the index has no room for another extent"));
      core_.use(*writing.id);
      core_.live_on(*writing.id, writing.facts.expires_s);
    }
    if (may_become() && core_.placer.waits(*writing.id) && patient()) return false;
    writing.placed = true;
    if (place(writing, lock)) return true;
    writing.since_s = core_.clock.now_s();
  }
  for (; writing.tier < core_.tier_count(); ++writing.tier, writing.since_s = core_.clock.now_s()) {
    if (core_.index.at(*writing.id).on(writing.tier)) {
      stored(writing, std::move(lock));
      return true;
    }
    const TierState& tier = core_.tiers[writing.tier];
    if (tier.tier().read_only() || tier.tier().silent() || writing.facts.bytes > tier.capacity_bytes()) continue;
    if (tier.writing.contains(writing.facts.name) && patient()) return false;  // what it left there goes first
    const bool room = core_.has_room(writing.tier, writing.facts.bytes);
    if (room && core_.begin_write(writing.tier, {writing.facts.name, writing.blobs->tag}, writing.facts.bytes)) break;
    if ((room || !tier.config.shared) && patient()) return false;  // on a shared tier nobody makes it
  }
  if (writing.tier == core_.tier_count()) {
    return refuse(writing, lock, no_room(writing, "more"));
  }
  lock.unlock();
  writing.begun = true;
  writing.logged = core_.flush_soon(writing.tier);
  return true;
}

// What it was to become lies there; where that failed, it is written as it is, there or on the next tier with room.
bool SaveJob::became(Writing& writing) {
  {
    const std::lock_guard lock(core_.mutex);
    if (!*writing.becoming) return false;
    if (**writing.becoming) note_stored(writing);
  }
  writing.becoming.reset();
  writing.since_s = core_.clock.now_s();
  if (!writing.stored) return true;
  count_placed(1);
  begin_replica(writing);
  return true;
}

bool SaveJob::start_writing(Writing& writing) {
  if (!core_.flushed(writing.tier, writing.logged)) return false;
  writing.writer = core_.go_on_writing(writing.tier, writing.blobs);
  if (writing.writer) return true;
  writing.begun = false;
  writing.over = writing.stored;
  if (!writing.stored) failed(writing, fail(ErrorCode::kIo, "the index of tier {} cannot be opened", writing.tier));
  return true;
}

// The extent lies on the tier: still, or since just now.
void SaveJob::stored(Writing& writing, std::unique_lock<std::mutex> lock) {
  const bool first = !writing.stored;
  const ExtentId id = *writing.id;
  // While this copy was being written: what a lossy form has taken the place of is not.
  const bool by_callers = core_.index.at(id).tiers == 0 && core_.removals != writing.removals;
  const bool removed = !first && (by_callers || !core_.placer.lies(id));
  const bool fresh = !core_.index.at(id).on(writing.tier);
  core_.set_on(id, writing.tier);
  core_.log_stored(id, writing.tier);
  if (first && plan_.hints.pin) core_.pin(id, true);
  core_.placer.written(id);
  if (fresh) tell(writing);
  note_stored(writing);
  if (removed) core_.remove_from(id, writing.tier);
  lock.unlock();
  writing.over = !first;
  if (!first) return;
  count_placed(1);
  begin_replica(writing);
}

// With the mutex held. What was promised before is given back.
bool SaveJob::admit(Writing& writing) {
  TenantState& tenant = core_.tenant(plan_.hints.tenant);
  tenant.bytes_promised -= std::exchange(writing.promised, 0);
  if (!core_.placer.admit(*writing.id, tenant)) return false;
  if (tenant.counts.bytes_max > 0) writing.promised = writing.facts.bytes;
  return true;
}

// The blocks lie on the tier.
void SaveJob::tell(const Writing& writing) {
  if (core_.options.events_max == 0) return;
  const Plan::Piece& piece = writing.piece;
  const auto keys = std::span(plan_.keys).subspan(piece.first_block, piece.blocks);
  StoreEvent event{.kind = StoreEvent::Kind::kStored,
                   .tier = writing.tier,
                   .tenant = plan_.hints.tenant,
                   .parent = piece.first_block > 0 ? plan_.keys[piece.first_block - 1] : BlockKey{},
                   .first_block = piece.first_block,
                   .keys = {keys.begin(), keys.end()},
                   .block_tokens = core_.options.geometry.block_tokens,
                   .exact = plan_.hints.method.is_full()};
  const std::size_t from = std::size_t{piece.first_block} * event.block_tokens;
  const std::size_t count = std::size_t{piece.blocks} * event.block_tokens;
  if (plan_.tokens.size() >= from + count) {
    const auto tokens = std::span(plan_.tokens).subspan(from, count);
    event.tokens.assign(tokens.begin(), tokens.end());
  }
  core_.events.push(std::move(event));
}

// With the mutex held: the blocks lie on a tier, in some form.
void SaveJob::note_stored(Writing& writing) {
  const Plan::Piece& piece = writing.piece;
  if (std::exchange(writing.stored, true)) return;
  writing.removals = core_.removals;
  core_.tenant(plan_.hints.tenant).counts.blocks_saved += piece.blocks;
  forget_saving(core_, plan_, piece);
}

void SaveJob::count_placed(std::size_t pieces) {
  placed_ += pieces;
  if (placed_ == plan_.pieces.size()) handle_->set_done(status_);
}

// Another copy on the lowest tier while it has room: what outlives this process, and what others see. Where that tier
// takes them more slowly than they come, they hold up nothing else: no more than half of what may be staged waits
// there.
void SaveJob::begin_replica(Writing& writing) {
  writing.over = true;
  const std::uint32_t last = core_.tier_count() - 1;
  {
    const std::lock_guard lock(core_.mutex);
    TierState& state = core_.tiers[last];
    const bool wanted = last != writing.tier && !state.is_private() && !state.tier().read_only() &&
                        !core_.index.at(*writing.id).on(last) && core_.has_room(last, writing.facts.bytes) &&
                        core_.staging.used(StagedFor::kCopies) <= core_.staging.bytes_max() / 2;
    if (!wanted || !admit(writing) ||
        !core_.begin_write(last, {writing.facts.name, writing.blobs->tag}, writing.facts.bytes))
      return;
  }
  writing.share.turn_into(StagedFor::kCopies, writing.facts.bytes);
  writing.over = false;
  writing.tier = last;
  writing.begun = true;
  writing.logged = core_.flush_soon(last);
}

// The next tier is tried; where there is none, the extent is lost.
void SaveJob::failed(Writing& writing, Status status) {
  if (writing.tier + 1 < core_.tier_count()) {
    ++writing.tier;
    writing.since_s = core_.clock.now_s();
    return;
  }
  writing.over = true;
  if (status_) status_ = std::move(status);
  {
    const std::lock_guard lock(core_.mutex);
    if (writing.id) core_.placer.written(*writing.id);
    forget_saving(core_, plan_, writing.piece);
    ++core_.counts.extents_failed;
  }
  count_placed(1);
}

}  // namespace shale
