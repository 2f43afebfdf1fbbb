// The request of the largest α · reuse + β · waiting; reuse in resident blocks of its prompt, waiting in seconds; of
// equals the earliest (A Systematic Study of KV Cache Management for Efficient LLM Inference). All requests wait at the
// same rate, so at any moment they are in the order of α · reuse − β · arrival.
#include <algorithm>
#include <cassert>
#include <set>
#include <unordered_map>
#include <vector>

#include "scheduling/schedulers.h"

namespace shale {
namespace {

struct Score {
  double value;
  std::uint32_t id;
  bool operator<(const Score& other) const { return value != other.value ? value > other.value : id < other.id; }
};

double score(const SchedulerOptions& options, const WaitingRequest& request, std::uint32_t reuse) {
  return options.alpha * reuse - options.beta * request.arrival_s;
}

// As the paper's table has it: every look-up touches what it finds.
class Rescored final : public Scheduler {
 public:
  Rescored(const SchedulerOptions& options, PrefixLookup& cache) : options_(options), cache_(cache) {}

  void add(const WaitingRequest& request) override { waiting_.push_back(request); }
  std::size_t waiting() const override { return waiting_.size(); }
  std::uint32_t take() override {
    assert(!waiting_.empty());
    const auto score_now = [&](const WaitingRequest& request) {
      return Score{score(options_, request, cache_.touch_prefix(request)), request.id};
    };
    std::size_t best = 0;
    Score best_score = score_now(waiting_[0]);
    for (std::size_t i = 1; i < waiting_.size(); ++i) {
      if (const Score each = score_now(waiting_[i]); each < best_score) {
        best = i;
        best_score = each;
      }
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(best));
    return best_score.id;
  }
  void withdraw(std::uint32_t id) override {
    std::erase_if(waiting_, [id](const WaitingRequest& request) { return request.id == id; });
  }

 private:
  SchedulerOptions options_;
  PrefixLookup& cache_;
  std::vector<WaitingRequest> waiting_;  // in order of arrival
};

// Keeps every waiting request's reuse right by following the cache: a block that comes concerns those whose first
// missing block it is, a block that goes those whose last resident one it was. Each move costs O(log waiting), so a
// request costs O((1 + its own moves) · log waiting), however many others wait.
class Followed final : public Scheduler, public CacheObserver {
 public:
  Followed(const SchedulerOptions& options, PrefixLookup& cache) : options_(options), cache_(cache) {}

  void add(const WaitingRequest& request) override { link({request, cache_.resident_prefix(request)}); }
  std::size_t waiting() const override { return order_.size(); }
  std::uint32_t take() override {
    assert(!order_.empty());
    return unlink(order_.begin()->id).request.id;
  }
  void withdraw(std::uint32_t id) override { unlink(id); }
  CacheObserver* observer() override { return this; }

  void inserted(BlockId block) override { move_all(first_missing_, block, +1); }
  void evicted(BlockId block) override { move_all(last_resident_, block, -1); }

 private:
  struct Item {
    WaitingRequest request;
    std::uint32_t reuse;
  };
  using Index = std::set<std::pair<BlockId, std::uint32_t>>;  // block, id

  void link(const Item& item) {
    const auto& [request, reuse] = item;
    if (reuse > 0) last_resident_.emplace(request.blocks[reuse - 1], request.id);
    if (reuse < request.blocks.size()) first_missing_.emplace(request.blocks[reuse], request.id);
    order_.insert({score(options_, request, reuse), request.id});
    items_.emplace(request.id, item);
  }
  Item unlink(std::uint32_t id) {
    const Item item = items_.extract(id).mapped();
    const auto& [request, reuse] = item;
    if (reuse > 0) last_resident_.erase({request.blocks[reuse - 1], id});
    if (reuse < request.blocks.size()) first_missing_.erase({request.blocks[reuse], id});
    order_.erase({score(options_, request, reuse), id});
    return item;
  }
  void move_all(const Index& index, BlockId block, int step) {
    for (auto first = index.lower_bound({block, 0}); first != index.end() && first->first == block;
         first = index.lower_bound({block, 0})) {
      Item item = unlink(first->second);
      item.reuse += static_cast<std::uint32_t>(step);
      link(item);
    }
  }

  SchedulerOptions options_;
  PrefixLookup& cache_;
  std::unordered_map<std::uint32_t, Item> items_;  // by id
  Index first_missing_, last_resident_;
  std::set<Score> order_;
};

}  // namespace

std::unique_ptr<Scheduler> make_reuse(const SchedulerOptions& options, PrefixLookup& cache) {
  if (options.rescore) return std::make_unique<Rescored>(options, cache);
  return std::make_unique<Followed>(options, cache);
}

}  // namespace shale
