#include <utility>

#include "cache/job.h"
#include "cache/stored_observations.h"

namespace shale {

namespace {

class ObserveJob final : public Job {
 public:
  ObserveJob(JobContext& context, Entry& entry, Observations observations)
      : Job(context, entry), observations_(std::move(observations)) {
    for (const StoredObject& object : entry.objects) {
      if (object.method().is_full() && !context.tiers[object.tier]->read_only()) copies_.push_back(object);
    }
  }

  Progress step(Executor&) override {
    if (write_) return finish_write();
    if (read_) return read_->ready() ? add_to(copies_.back()) : Progress::kWaiting;
    if (copies_.empty()) return Progress::kDone;
    read_ = context_.tiers[copies_.back().tier]->read(blob(copies_.back()));
    return Progress::kWorked;
  }

 private:
  static BlobId blob(const StoredObject& copy) { return {copy.name(), kObservationsPart}; }

  // Blobs are immutable: what changes is written anew.
  Progress add_to(const StoredObject& copy) {
    Observations stored = read_observations(std::exchange(read_, nullptr)->take(), *copy.manifest, context_.stats);
    const ScorerNeeds before = stored.given();
    stored.merge(observations_);
    Tier& tier = *context_.tiers[copy.tier];
    if (missing_needs(stored.given(), before).empty() || !entry().find(copy.method(), copy.tier) ||
        !tier.remove(blob(copy))) {
      copies_.pop_back();
      return Progress::kWorked;
    }
    write_ = tier.write(blob(copy), std::make_shared<const AlignedBuffer>(serialize(stored)));
    return Progress::kWorked;
  }

  Progress finish_write() {
    if (!write_->ready()) return Progress::kWaiting;
    if (!write_->wait()) ++context_.stats.failed_writes;
    write_ = nullptr;
    copies_.pop_back();
    return Progress::kWorked;
  }

  Observations observations_;
  std::vector<StoredObject> copies_;  // still to see to
  std::shared_ptr<TierRead> read_;
  std::shared_ptr<TierWrite> write_;
};

}  // namespace

Observations read_observations(const Result<BlobBytes>& blob, const Manifest& manifest, CacheStats& stats) {
  if (!blob) return {};
  Result<Observations> read = parse_observations((*blob)->bytes());
  if (!read && read.error().code == ErrorCode::kMismatch) return {};
  const PageShape& shape = manifest.shape;
  if (read && read->layers == shape.layers && read->kv_heads == shape.kv_heads && read->head_dim == shape.head_dim &&
      read->tokens == manifest.tokens.size() && read->query_heads > 0 && read->query_heads % shape.kv_heads == 0) {
    return std::move(*read);
  }
  ++stats.corrupt_observations;
  return {};
}

std::unique_ptr<Job> make_observe_job(JobContext& context, Entry& entry, Observations observations) {
  return std::make_unique<ObserveJob>(context, entry, std::move(observations));
}

}  // namespace shale
