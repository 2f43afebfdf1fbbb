#include "cache/job.h"

#include <algorithm>
#include <utility>

#include "cache/copy_changes.h"
#include "cache/stored_observations.h"

namespace shale {

namespace {

class CopyJob final : public Job {
 public:
  CopyJob(JobContext& context, Entry& entry, CopyTarget target, std::vector<CopyCut> cuts)
      : Job(context, entry), target_(std::move(target)), cuts_(std::move(cuts)) {}

  Progress step(Executor& executor) override {
    switch (phase_) {
      case Phase::kStart:
        return start();
      case Phase::kRead:
        return finish_read(executor);
      case Phase::kDecode:
        return decode(executor);
      case Phase::kWrite:
        return finish_write();
      case Phase::kStore:
        return store(executor);
      case Phase::kCut:
        return cut();
    }
    return Progress::kDone;
  }

  bool frees_room() const override { return !cuts_.empty(); }

 private:
  enum class Phase { kStart, kRead, kDecode, kWrite, kStore, kCut };

  Progress start() {
    const bool there = std::ranges::any_of(entry().objects, [&](const StoredObject& object) {
      return object.tier == target_.tier && object.serves(target_.method, target_.keep);
    });
    if (there) return conclude(true);
    const StoredObject* source = same_method_source();
    as_is_ = source != nullptr;
    if (!source) source = entry().full_copy();
    if (!source || context_.tiers[target_.tier]->read_only()) return conclude(false);
    source_ = *source;
    Tier& tier = *context_.tiers[source_.tier];
    const std::uint32_t strata = as_is_ ? source_.manifest->strata_for(target_.keep) : source_.strata;
    const Bits bits = as_is_ ? *source_.serves(target_.method, target_.keep) : source_.bits;
    reader_.emplace(tier, source_.manifest, strata, bits);
    phase_ = Phase::kRead;
    return Progress::kWorked;
  }

  // An object that holds the target, the fastest.
  const StoredObject* same_method_source() {
    const StoredObject* best = nullptr;
    for (const StoredObject& object : entry().objects) {
      if (object.serves(target_.method, target_.keep) && (!best || object.tier < best->tier)) best = &object;
    }
    return best;
  }

  Progress finish_read(Executor&) {
    if (!reader_->poll() || entry().being_read()) return Progress::kWaiting;
    auto object = reader_->finish();
    if (!object) return lose_source(object.error());
    object_ = std::move(*object);
    if (object_.observations) {
      observations_ = read_observations(object_.observations, *object_.manifest, context_.stats);
      if (observations_.empty()) object_.observations = nullptr;
    }
    if (as_is_) {
      make_way();
      phase_ = Phase::kWrite;
      return Progress::kWorked;
    }
    pages_.emplace(context_.pool);
    auto decoder = ObjectDecoder::start(*object_.manifest, 1.0, static_cast<std::uint32_t>(entry().tokens.size()),
                                        *pages_, Bits::kAll, {}, context_.tables);
    if (!decoder) return conclude(false);  // the pool has no room now; the planner will ask again
    decoder_.emplace(std::move(*decoder));
    phase_ = Phase::kDecode;
    return Progress::kWorked;
  }

  Progress decode(Executor& executor) {
    if (decoded_ < object_.chunks.size()) {
      const Status status = decoder_->decode(decoded_, object_.chunks[decoded_]->bytes(), executor);
      ++decoded_;
      return status ? Progress::kWorked : lose_source(status.error());
    }
    if (entry().being_read()) return Progress::kWaiting;
    make_way();
    store_ = make_store_job(context_, entry(), std::move(*pages_), 0, std::move(observations_), {target_});
    phase_ = Phase::kStore;
    return Progress::kWorked;
  }

  bool is_cut(const StoredObject& object) const {
    return std::ranges::any_of(
        cuts_, [&](const CopyCut& cut) { return cut.method == object.method() && cut.tier == object.tier; });
  }

  // Whether an uncompressed copy stays that undoes every loss.
  bool base_stays() {
    return std::ranges::any_of(
        entry().objects, [&](const StoredObject& object) { return object.method().is_full() && !is_cut(object); });
  }

  // Where the old copy and the new one may not fit side by side, the old one goes first.
  void make_way() {
    const Tier& tier = *context_.tiers[target_.tier];
    const bool fits = source_.bytes() <= tier.capacity_bytes() - std::min(tier.capacity_bytes(), tier.used_bytes());
    if (fits || !base_stays()) return;
    for (const CopyCut& cut : cuts_) {
      if (cut.tier == target_.tier) cut_copy(context_, entry(), cut);
    }
  }

  Progress finish_write() {
    if (!writer_) {
      writer_.emplace(*context_.tiers[target_.tier], object_);
      return Progress::kWorked;
    }
    if (!writer_->poll() || entry().being_read()) return Progress::kWaiting;
    const Status status = writer_->finish();
    if (!status && status.error().code == ErrorCode::kFull && !deferred_ && base_stays()) return defer();
    if (!status) {
      count_failure(context_.stats, status.error());
      return conclude(false);
    }
    register_copy(entry(), target_.tier, writer_->object());
    ++context_.stats.copies;
    return conclude(true);
  }

  // Two entries that change places between full tiers each wait for the other's room: this one gives up its own, holds
  // its bytes, and takes its new place after the others have moved.
  Progress defer() {
    deferred_ = true;
    writer_.reset();
    for (const CopyCut& cut : cuts_) cut_copy(context_, entry(), cut);
    return Progress::kDeferred;
  }

  Progress store(Executor& executor) {
    const Progress progress = store_->step(executor);
    if (progress != Progress::kDone) return progress;
    return conclude(entry().find(target_.method, target_.tier) != nullptr);
  }

  Progress lose_source(const Error& error) {
    // What only could not be read now may be sound, and on a shared tier others read it: it is forgotten here alone.
    if (error.code == ErrorCode::kCorrupt) {
      ++context_.stats.corrupt_objects;
      if (!remove_object(*context_.tiers[source_.tier], source_.name())) ++context_.stats.stuck_objects;
    } else {
      ++context_.stats.failed_reads;
    }
    entry().forget(source_.name(), source_.tier);
    return conclude(false);
  }

  Progress conclude(bool made) {
    if (!made) return Progress::kDone;
    phase_ = Phase::kCut;
    return Progress::kWorked;
  }

  Progress cut() {
    if (entry().being_read()) return Progress::kWaiting;
    for (const CopyCut& cut : cuts_) cut_copy(context_, entry(), cut);
    return Progress::kDone;
  }

  CopyTarget target_;
  std::vector<CopyCut> cuts_;
  Phase phase_ = Phase::kStart;
  bool as_is_ = false, deferred_ = false;
  StoredObject source_;
  std::optional<ObjectReader> reader_;
  Observations observations_;
  ObjectBytes object_;
  std::optional<ObjectWriter> writer_;
  std::optional<Sequence> pages_;
  std::optional<ObjectDecoder> decoder_;
  std::uint32_t decoded_ = 0;
  std::unique_ptr<Job> store_;
};

class CutJob final : public Job {
 public:
  CutJob(JobContext& context, Entry& entry, std::vector<CopyCut> cuts) : Job(context, entry), cuts_(std::move(cuts)) {}

  Progress step(Executor&) override {
    if (entry().being_read()) return Progress::kWaiting;
    for (const CopyCut& cut : cuts_) cut_copy(context_, entry(), cut);
    return Progress::kDone;
  }

  bool frees_room() const override { return true; }

 private:
  std::vector<CopyCut> cuts_;
};

}  // namespace

std::unique_ptr<Job> make_copy_job(JobContext& context, Entry& entry, CopyTarget target, std::vector<CopyCut> cuts) {
  return std::make_unique<CopyJob>(context, entry, std::move(target), std::move(cuts));
}

std::unique_ptr<Job> make_cut_job(JobContext& context, Entry& entry, std::vector<CopyCut> cuts) {
  return std::make_unique<CutJob>(context, entry, std::move(cuts));
}

}  // namespace shale
