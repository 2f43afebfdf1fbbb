#include <algorithm>
#include <utility>

#include "cache/copy_changes.h"
#include "cache/job.h"
#include "cache/stored_observations.h"

namespace shale {
namespace {

// Encodes by all the methods that its targets ask for, then gives the pages back, then writes.
class StoreJob final : public Job {
 public:
  StoreJob(JobContext& context, Entry& entry, Sequence held, std::uint32_t first, Observations observations,
           std::vector<CopyTarget> targets)
      : Job(context, entry),
        held_(std::move(held)),
        first_(first),
        observations_(std::move(observations)),
        targets_(std::move(targets)) {}

  Progress step(Executor& executor) override {
    if (prepare(executor)) return Progress::kWorked;
    if (!encoded_.empty()) return start_writes();
    return finish_writes();
  }

  // Encodes, the pages being in the way of requests meanwhile.
  bool prepare(Executor& executor) override {
    if (encoder_) {
      encode(executor);
      return true;
    }
    if (encoding_ < targets_.size()) {
      start_next();
      return true;
    }
    if (held_.length() > 0) {
      held_.clear();
      return true;
    }
    return false;
  }

  bool unprepared() const override { return held_.length() > 0; }
  std::uint64_t prepared_bytes() const override { return encoded_bytes_; }
  // Entries that are on no tier yet are new; others only move.
  bool can_be_given_up() const override { return unprepared() && entry().objects.empty(); }
  std::uint32_t slabs_kept() const override {
    constexpr std::uint32_t kOwnAndTrees = 2;
    return static_cast<std::uint32_t>(std::ranges::count_if(
        held_.slabs(held_.length()), [this](SlabId slab) { return context_.pool.references(slab) <= kOwnAndTrees; }));
  }

 private:
  struct Encoded {
    Method method;
    std::shared_ptr<const ObjectEncoder::Encoded> object;
  };
  struct Writing {
    ObjectWriter writer;
    std::uint32_t tier;
  };

  // The next method: all its targets are written from one encoding.
  void start_next() {
    const Method method = targets_[encoding_].method;
    const auto same = [&](const CopyTarget& target) { return target.method == method; };
    const PageShape& shape = context_.pool.shape();
    const std::uint32_t tokens = static_cast<std::uint32_t>(entry().tokens.size());
    std::vector<SlabId> slabs = held_.slabs(first_ + tokens);
    slabs.erase(slabs.begin(), slabs.begin() + first_ / shape.page_tokens);
    Manifest identity;
    identity.key = entry().key;
    identity.parent = entry().parent;
    identity.fingerprint = context_.fingerprint;
    identity.shape = shape;
    identity.first_position = entry().first_position;
    identity.tokens = entry().tokens;
    identity.method = method;
    auto encoder =
        ObjectEncoder::start(context_.pool, std::move(slabs), first_ % shape.page_tokens, std::move(identity),
                             context_.scorers, observations_, context_.model, context_.tables);
    if (!encoder) {
      count_failure(context_.stats, encoder.error());
      std::erase_if(targets_, same);
      return;
    }
    encoder_.emplace(std::move(*encoder));
    const auto rest =
        std::stable_partition(targets_.begin() + static_cast<std::ptrdiff_t>(encoding_), targets_.end(), same);
    encoding_ = static_cast<std::size_t>(rest - targets_.begin());
  }

  void encode(Executor& executor) {
    if (encoder_->step(executor)) return;
    auto object = std::make_shared<const ObjectEncoder::Encoded>(encoder_->finish());
    encoder_.reset();
    for (const ChunkInfo& chunk : object->manifest.chunks) encoded_bytes_ += chunk.bytes;
    context_.stats.encoded_bytes += object->manifest.bytes_for(1);
    encoded_.push_back({object->manifest.method, std::move(object)});
  }

  Progress start_writes() {
    if (entry().being_read()) return Progress::kWaiting;
    for (Encoded& each : std::exchange(encoded_, {})) {
      BlobBytes observations;
      if (each.method.is_full() && !observations_.empty()) {
        observations = std::make_shared<const AlignedBuffer>(serialize(observations_));
      }
      for (const CopyTarget& target : targets_) {
        if (target.method != each.method) continue;
        Tier& tier = *context_.tiers[target.tier];
        if (tier.read_only()) continue;
        cut_copy(context_, entry(), {each.method, target.tier, 0});  // one with fewer strata, that this one replaces
        ObjectBytes object = object_bytes(each.object, each.object->manifest.strata_for(target.keep));
        object.observations = observations;
        writers_.push_back({ObjectWriter(tier, std::move(object)), target.tier});
      }
    }
    return Progress::kWorked;
  }

  Progress finish_writes() {
    bool ready = true;
    for (Writing& writing : writers_) ready = writing.writer.poll() && ready;
    if (!ready) return Progress::kWaiting;
    for (Writing& writing : writers_) {
      if (const Status status = writing.writer.finish(); status) {
        register_copy(entry(), writing.tier, writing.writer.object());
      } else {
        count_failure(context_.stats, status.error());
      }
    }
    return Progress::kDone;
  }

  Sequence held_;  // until all is encoded
  std::uint32_t first_;
  Observations observations_;
  std::vector<CopyTarget> targets_;  // [0, encoding_): encoded, or being encoded
  std::size_t encoding_ = 0;
  std::optional<ObjectEncoder> encoder_;
  std::vector<Encoded> encoded_;  // not yet being written
  std::uint64_t encoded_bytes_ = 0;
  std::vector<Writing> writers_;
};

}  // namespace

std::unique_ptr<Job> make_store_job(JobContext& context, Entry& entry, Sequence held, std::uint32_t first,
                                    Observations observations, std::vector<CopyTarget> targets) {
  return std::make_unique<StoreJob>(context, entry, std::move(held), first, std::move(observations),
                                    std::move(targets));
}

}  // namespace shale
