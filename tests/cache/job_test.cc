// Jobs beside requests that read the same entry.
#include "cache/job.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/cache_fixture.h"
#include "tier/pending.h"
#include "tier/tier_wrapper.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

// Reads find their blob when somebody lets them, as a busy disk's do.
class LateTier final : public TierWrapper {
 public:
  LateTier(std::unique_ptr<Tier> inner, const Clock& clock) : TierWrapper(std::move(inner), {1e-3, 1e9, 1e9}, clock) {}

  void let_reads_go() {
    for (auto& [id, read, start_s] : std::exchange(waiting_, {})) {
      Result<BlobBytes> result = inner().read(id)->take();
      finished_read(start_s, clock_.now_s() - start_s, result, {});
      read->complete(std::move(result), clock_.now_s() - start_s);
    }
    late_ = false;
  }
  void be_late() { late_ = true; }

 private:
  struct Waiting {
    BlobId id;
    std::shared_ptr<PendingRead> read;
    double start_s;
  };
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange&, double start_s) override {
    auto read = std::make_shared<PendingRead>();
    waiting_.push_back({id, read, start_s});
    if (!late_) let_reads_go();
    return read;
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    const auto write = inner().write(id, std::move(bytes));
    const Status status = write->wait();
    finished_write(start_s, clock_.now_s() - start_s, size, write->created(), status);
    return write;
  }

  std::vector<Waiting> waiting_;
  bool late_ = false;
};

TEST_F(CacheTest, ACutWaitsForReadsUnderWay) {
  auto late = std::make_unique<LateTier>(make_memory_tier(kUnlimited, clock_), clock_);
  LateTier& tier = *late;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::move(late));
  CacheOptions options;
  options.load_always = true;
  cache_ = Cache::open(options, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_).value();
  const Tokens tokens = tokens_of(1, 150);
  const EntryKey key = store(tokens);
  drain();

  tier.be_late();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  ASSERT_EQ(retrieval.tokens(), 150u);
  CacheStats stats;
  JobContext context{
      *pool_, cache_->tiers(), cache_->fingerprint(), cache_->options().scorers, cache_->options().model, nullptr,
      stats};
  const auto job = make_cut_job(context, *cache_->index().find(key), {{Method::full(), 0, 0}});
  EXPECT_EQ(job->step(executor_), Job::Progress::kWaiting);
  tier.let_reads_go();
  EXPECT_EQ(job->step(executor_), Job::Progress::kDone) << "the bytes are here, whoever takes them";
  EXPECT_EQ(stats.drops, 1u);
  const Status loaded = retrieval.ensure_all(executor_);
  EXPECT_TRUE(loaded) << loaded.error().message;
  expect_exact(tokens, sequence);
}

// Between two full tiers nobody can move first without giving up its place.
TEST_F(CacheTest, EntriesChangePlacesBetweenFullTiers) {
  const Method int8{"", "int8"};
  const std::uint64_t room = pool_->shape().token_bytes() * 150 * 7 / 10;  // for one entry at 8 bits
  std::vector<std::unique_ptr<Tier>> tiers;
  for (const std::uint64_t bytes : {room, room, kUnlimited}) tiers.push_back(make_memory_tier(bytes, clock_));
  cache_ = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_).value();
  Entry& up = *cache_->index().find(store(tokens_of(1, 150)));
  Entry& down = *cache_->index().find(store(tokens_of(2, 150)));
  drain();
  CacheStats stats;
  JobContext context{
      *pool_, cache_->tiers(), cache_->fingerprint(), cache_->options().scorers, cache_->options().model, nullptr,
      stats};
  const auto run = [&](std::deque<std::unique_ptr<Job>> jobs) {
    for (int steps = 0; !jobs.empty() && steps < 10000; ++steps) {
      const Job::Progress progress = jobs.front()->step(executor_);
      if (progress == Job::Progress::kDeferred) jobs.push_back(std::move(jobs.front()));
      if (progress == Job::Progress::kDeferred || progress == Job::Progress::kDone) jobs.pop_front();
    }
    EXPECT_TRUE(jobs.empty());
  };
  const auto move = [&](Entry& entry, std::uint32_t from, std::uint32_t to) {
    return make_copy_job(context, entry, {int8, 1, to}, {{int8, from, 0}});
  };
  std::deque<std::unique_ptr<Job>> placing, swapping;
  placing.push_back(make_copy_job(context, down, {int8, 1, 0}, {}));
  placing.push_back(make_copy_job(context, up, {int8, 1, 1}, {}));
  run(std::move(placing));
  ASSERT_TRUE(down.find(int8, 0) && up.find(int8, 1));

  swapping.push_back(move(down, 0, 1));
  swapping.push_back(move(up, 1, 0));
  run(std::move(swapping));
  EXPECT_TRUE(down.find(int8, 1) && !down.find(int8, 0));
  EXPECT_TRUE(up.find(int8, 0) && !up.find(int8, 1));
  EXPECT_TRUE(up.full_copy() && down.full_copy());
  EXPECT_EQ(stats.refused_full, 0u);
  EXPECT_TRUE(cache_->check_integrity());
}

}  // namespace
}  // namespace shale
