#include "store/store_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr std::size_t kWritingMax = 4;   // extents of a save, so that encoding and writing overlap
constexpr double kPatienceForRoomS = 3;  // while a tier is being emptied, before the next one is tried

}  // namespace

void StoreSave::State::set_released() {
  {
    const std::lock_guard lock(mutex);
    released = true;
  }
  changed.notify_all();
  core.signal();
}

void StoreSave::State::set_done(Status with) {
  {
    const std::lock_guard lock(mutex);
    released = done = true;
    status = std::move(with);
  }
  changed.notify_all();
  core.signal();
}

template <class Reached>
void StoreSave::State::wait_until(const Reached& reached) {
  InlineExecutor executor;
  std::unique_lock lock(mutex);
  while (!reached()) {
    if (core.options.threads > 0) {
      changed.wait_for(lock, std::chrono::milliseconds(10));
      continue;
    }
    lock.unlock();
    if (!core.work(executor, 1e-3)) core.clock.sleep_until_s(core.clock.now_s() + 1e-4);
    lock.lock();
  }
}

SaveJob::SaveJob(StoreCore& core, Plan plan, std::shared_ptr<StoreSave::State> handle)
    : core_(core), plan_(std::move(plan)), handle_(std::move(handle)) {}

SaveJob::~SaveJob() = default;

StoreJob::Progress SaveJob::step(Executor& executor) {
  if (handle_->cancelled && (encoder_ || next_ < plan_.pieces.size())) {
    give_up(fail(ErrorCode::kCancelled, "the save was cancelled"));
  }
  bool worked = false;
  for (Writing& writing : writings_) {
    worked = advance(writing) || worked;
    if (!writing.over || !writing.stored) continue;
    const std::lock_guard lock(core_.mutex);
    core_.unuse(*writing.stored);
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
  for (; next_ < plan_.pieces.size(); ++next_, ++placed_) forget_saving(plan_.pieces[next_]);
  if (status_) status_ = std::move(status);
  handle_->set_released();
  if (placed_ == plan_.pieces.size()) handle_->set_done(status_);
}

// True when it did something.
bool SaveJob::encode(Executor& executor) {
  if (next_ == plan_.pieces.size()) return false;
  if (!encoder_ && !ranker_) {
    if (writings_.size() >= kWritingMax) return false;
    const auto& piece = plan_.pieces[next_];
    encoder_share_ = core_.staging.take(
        core_.options.geometry.bytes(piece.blocks * core_.options.geometry.block_tokens), writings_.empty());
    if (!encoder_share_) return false;
  }
  Status started;
  bool more = false;
  {
    const std::lock_guard reading(handle_->view_mutex);
    if (handle_->cancelled) return true;
    if (!encoder_) started = start_encoder();
    if (started) more = encoder_ ? encoder_->step(executor) : ranker_->step(executor);
  }
  if (!started) {
    give_up(std::move(started));
  } else if (!more && encoder_) {
    finish_encoder();
  } else if (!more) {
    ranking_ = ranker_->finish();
  }
  return true;
}

// Methods with a scorer rank the whole view first, what is there already with it.
Status SaveJob::start_encoder() {
  const std::uint32_t block_tokens = core_.options.geometry.block_tokens;
  const Method& method = plan_.hints.method;
  if (!method.scorer.empty() && !ranking_) {
    if (!ranker_) {
      SHALE_ASSIGN(ranker_, RunRanker::start(plan_.view, method.ranking(), plan_.view_block * block_tokens,
                                             core_.options.scorers, plan_.hints.observations, core_.options.model));
    }
    return {};
  }
  const auto& piece = plan_.pieces[next_];
  const auto first = static_cast<std::ptrdiff_t>(piece.first_block);
  ExtentManifest identity;
  identity.name_space = core_.name_space;
  identity.tenant = plan_.realm;
  identity.geometry = core_.options.geometry;
  if (method.is_full() && !identity.geometry.opaque()) identity.packing = core_.options.packing;
  identity.method = method;
  identity.chunk_tokens = core_.options.chunk_tokens;
  identity.tokens = piece.blocks * block_tokens;
  identity.first_position = piece.first_block * block_tokens;
  if (first > 0) identity.parent = plan_.keys[piece.first_block - 1];
  identity.keys.assign(plan_.keys.begin() + first, plan_.keys.begin() + first + piece.blocks);
  const std::size_t from = identity.first_position, to = from + identity.tokens;
  if (plan_.tokens.size() >= to) {
    identity.token_ids.assign(plan_.tokens.begin() + static_cast<std::ptrdiff_t>(from),
                              plan_.tokens.begin() + static_cast<std::ptrdiff_t>(to));
  }
  identity.windows.assign(core_.options.model.windows.begin(), core_.options.model.windows.end());
  std::vector<Ranking> rankings;
  if (ranking_) {
    const std::uint32_t in_view = (piece.first_block - plan_.view_block) * block_tokens;
    rankings.push_back({ranking_->name, ranking_->tiers.part(in_view, identity.tokens)});
  }
  const KvView part = plan_.view.part((piece.first_block - plan_.view_block) * block_tokens, identity.tokens);
  SHALE_ASSIGN(encoder_, ExtentEncoder::start(part, std::move(identity), std::move(rankings), core_.options.tables));
  return {};
}

void SaveJob::finish_encoder() {
  ExtentEncoder::Encoded encoded = encoder_->finish();
  encoder_.reset();
  const double keep = plan_.hints.keep;
  auto blobs = std::make_shared<ExtentBlobs>();
  blobs->manifest = std::make_shared<AlignedBuffer>(encoded.manifest.serialize());
  blobs->parts.resize(encoded.parts.size());
  for (const std::uint32_t part : stored_parts(encoded.manifest, keep)) {
    blobs->parts[part] = std::make_shared<AlignedBuffer>(std::move(encoded.parts[part]));
  }
  Writing writing;
  writing.facts = facts_of(encoded.manifest, plan_.realm, keep, 0);
  writing.facts.bytes = bytes_at_rest(encoded.manifest, keep, blobs->manifest->size());
  writing.facts.quality = static_cast<float>(writing.facts.exact ? 1 : plan_.hints.quality);
  writing.piece = plan_.pieces[next_];
  const auto all = plan_.pieces.back().first_block + plan_.pieces.back().blocks - plan_.pieces.front().first_block;
  writing.facts.recompute_s = static_cast<float>(plan_.hints.recompute_s * writing.piece.blocks / all);
  writing.facts.accessed_s = core_.wall_s();
  if (plan_.hints.time_to_live_s > 0) writing.facts.expires_s = core_.wall_s() + plan_.hints.time_to_live_s;
  blobs->name = writing.facts.name;
  blobs->tag = writing.facts.tags.front();
  core_.manifests.put(blobs->name, std::make_shared<ExtentManifest>(std::move(encoded.manifest)),
                      2 * blobs->manifest->size());
  writing.blobs = std::move(blobs);
  writing.share = std::exchange(encoder_share_, {});
  writing.since_s = core_.clock.now_s();
  writings_.push_back(std::move(writing));
  if (++next_ == plan_.pieces.size()) handle_->set_released();
}

// True when it did something.
bool SaveJob::advance(Writing& writing) {
  if (!writing.writer) return begin(writing);
  if (!writing.writer->poll()) return false;
  const Status status = writing.writer->status();
  writing.writer.reset();
  const std::uint32_t tier = writing.tier;
  {
    const std::lock_guard lock(core_.mutex);
    --core_.tiers[tier].changes;
    if (!status) {
      IndexRecord record;
      record.type = Type::kSettled;
      record.name = writing.facts.name;
      record.tag = writing.blobs->tag;
      core_.log(tier, std::move(record));
    }
  }
  if (status) {
    stored(writing);
  } else if (writing.stored) {
    writing.over = true;  // it lies on the first tier
  } else {
    failed(writing, status);
  }
  core_.flush_log(tier);
  return true;
}

// On the fastest tier that has room, or will have it soon.
bool SaveJob::begin(Writing& writing) {
  std::unique_lock lock(core_.mutex);
  for (; writing.tier < core_.tier_count(); ++writing.tier, writing.since_s = core_.clock.now_s()) {
    TierState& state = core_.tiers[writing.tier];
    const auto known = core_.index.find(writing.facts.name);
    if (known && core_.index.at(*known).on(writing.tier)) {  // somebody else has saved the same
      lock.unlock();
      stored(writing);
      return true;
    }
    if (state.tier().read_only() || writing.facts.bytes > state.tier().capacity_bytes()) continue;
    const bool in_time = core_.clock.now_s() < writing.since_s + kPatienceForRoomS;
    if (state.removing.contains(writing.facts.name)) {
      if (in_time) return false;
      continue;
    }
    if (core_.make_room(writing.tier, writing.facts.bytes)) break;
    if (in_time && (state.leaving_bytes > 0 || (state.folder && !state.leads))) return false;
  }
  if (writing.tier == core_.tier_count()) {
    lock.unlock();
    failed(writing, fail(ErrorCode::kFull, "no tier has room for {} bytes more", writing.facts.bytes));
    return true;
  }
  const std::uint32_t tier = writing.tier;
  IndexRecord record;
  record.type = Type::kWriting;
  record.name = writing.facts.name;
  record.tag = writing.blobs->tag;
  record.bytes = writing.facts.bytes;
  core_.log(tier, std::move(record));
  ++core_.tiers[tier].changes;
  lock.unlock();
  core_.flush_log(tier);
  writing.writer = std::make_unique<ExtentWriter>(core_.tiers[tier].tier(), writing.blobs);
  return true;
}

void SaveJob::stored(Writing& writing) {
  const Plan::Piece& piece = writing.piece;
  const bool first = !writing.stored.has_value();
  std::unique_lock lock(core_.mutex);
  const auto id = core_.index.add(writing.facts, plan_.realm_number);
  if (!id) {
    lock.unlock();
    return failed(writing, fail(ErrorCode::kFull, "the index has no room for another extent"));
  }
  const bool removed = !first && core_.index.at(*id).tiers == 0;  // while this copy was being written
  core_.set_on(*id, writing.tier);
  core_.tiers[writing.tier].counts.bytes_written += writing.facts.bytes;
  IndexRecord record;
  record.type = Type::kStored;
  record.realm = {plan_.realm, plan_.hints.tenant};
  record.facts = writing.facts;
  core_.log(writing.tier, std::move(record));
  if (first) {
    writing.stored = *id;
    core_.use(*id);
    if (plan_.hints.pin) core_.pin(*id, true);
    core_.tenant(plan_.hints.tenant).counts.blocks_saved += piece.blocks;
  }
  const auto keys = std::span(plan_.keys).subspan(piece.first_block, piece.blocks);
  core_.events.push({StoreEvent::Kind::kStored,
                     writing.tier,
                     plan_.hints.tenant,
                     piece.first_block > 0 ? plan_.keys[piece.first_block - 1] : BlockKey{},
                     {keys.begin(), keys.end()},
                     core_.options.geometry.block_tokens});
  if (removed) core_.remove_from(*id, writing.tier);
  lock.unlock();
  writing.over = !first;
  if (!first) return;
  forget_saving(piece);
  if (++placed_ == plan_.pieces.size()) handle_->set_done(status_);
  begin_replica(writing);
}

// Another copy on the lowest tier while it has room: what outlives this process, and what others see.
void SaveJob::begin_replica(Writing& writing) {
  writing.over = true;
  const std::uint32_t last = core_.tier_count() - 1;
  {
    const std::lock_guard lock(core_.mutex);
    TierState& state = core_.tiers[last];
    const bool wanted = last != writing.tier && !state.is_private() && !state.tier().read_only() &&
                        !core_.index.at(*writing.stored).on(last) && !state.removing.contains(writing.facts.name) &&
                        core_.has_room(last, writing.facts.bytes);
    if (!wanted) return;
    IndexRecord record;
    record.type = Type::kWriting;
    record.name = writing.facts.name;
    record.tag = writing.blobs->tag;
    record.bytes = writing.facts.bytes;
    core_.log(last, std::move(record));
    ++state.changes;
  }
  writing.over = false;
  writing.tier = last;
  core_.flush_log(last);
  writing.writer = std::make_unique<ExtentWriter>(core_.tiers[last].tier(), writing.blobs);
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
  forget_saving(writing.piece);
  {
    const std::lock_guard lock(core_.mutex);
    ++core_.counts.extents_failed;
  }
  if (++placed_ == plan_.pieces.size()) handle_->set_done(status_);
}

void SaveJob::forget_saving(const Plan::Piece& piece) {
  const std::lock_guard lock(core_.mutex);
  for (std::uint32_t b = 0; b < piece.blocks; b += core_.chunk_blocks()) {
    core_.saving.erase(chunk_tag(plan_.keys[piece.first_block + b], plan_.realm));
  }
}

StoreSave::StoreSave(std::shared_ptr<State> state) : state_(std::move(state)) {}
StoreSave::~StoreSave() { cancel(); }

bool StoreSave::released() const {
  const std::lock_guard lock(state_->mutex);
  return state_->released || state_->cancelled;
}

bool StoreSave::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Status StoreSave::wait_released() {
  state_->wait_until([this] { return state_->released || state_->cancelled; });
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

Status StoreSave::wait() {
  state_->wait_until([this] { return state_->done; });
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

void StoreSave::cancel() {
  const std::lock_guard reading(state_->view_mutex);
  state_->cancelled = true;
}

std::uint32_t StoreSave::shared_blocks() const { return state_->shared_blocks; }

}  // namespace shale
