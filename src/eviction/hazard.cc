// Hazard: the leaf goes whose return is least likely for the room that it takes until then, by its age and by what was
// known of it at its last visit (hazard_model.h). docs/policies/hazard.md has the idea, the ablation and the limits.
//
// Evicted blocks are kept as ghosts, four times as many as the tree holds and no fewer than kGhostsMin: whoever returns
// late is still seen to return, and a conversation is known again. Nothing is set by hand for a kind of load.
//
// A leaf's rank changes as it ages. Ranks are made anew when the model is fitted, in turn for a few leaves a request,
// and before a leaf goes, if it has risen since. So a request costs O(log leaves) a block; a fit, after every 1/16 of
// the history, costs as much as there are blocks and ghosts.
#include "eviction/hazard.h"

#include <algorithm>
#include <utility>

#include "eviction/ghost_table.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

constexpr std::uint64_t kGhostsPerBlock = 4, kGhostsMin = 1 << 15;
constexpr std::size_t kRankedPerRequest = 4;
constexpr std::uint64_t kFirstFit = 32, kFitsPerHistory = 16, kHistoryMax = 1 << 20;  // requests

// Leaves rank by density, then by the last visit. Leaves of one rank lie on different paths of one tick.
using Rank = std::pair<float, std::uint32_t>;

class Hazard final : public PathPolicy<LeafQueues<Rank>, NodeFields{.keys = true}> {
 public:
  Hazard(std::shared_ptr<HazardModel> model, const HazardOptions& options)
      : PathPolicy(Newcomers::kCompete), model_(std::move(model)), options_(options), ghosts_(options.ghosts_max) {}

  std::uint64_t ghosts() const override { return ghosts_.size(); }

 private:
  struct Block {
    HazardModel::Sample sample = HazardModel::kNoSample;
    HazardModel::Cell cell = 0;
    std::uint32_t before_tick = 0;  // of the visit before this tick's
    std::uint16_t visits = 0;       // no more than fit
    std::uint8_t turn = 0;
    bool passed = false;  // a path went on below it
  };
  struct Ghost {
    Block block;
    std::uint32_t last_tick;
  };
  // A block of the path before this visit.
  struct Before {
    std::uint32_t last_tick = 0;
    bool known = false, this_tick = false;
  };

  std::uint32_t now() const { return static_cast<std::uint32_t>(tick()); }

  void begin(const PathAccess& visit) override {
    if (visit.path.empty() || !visit.counts || is_repeated(visit)) return;
    if (options_.learning == HazardLearning::kOnline && tick() >= next_fit_) fit();
    if (std::exchange(ranked_tick_, tick()) != tick()) rank_in_turn();
    std::size_t known = 0;  // how many blocks from the root
    before_.clear();
    for (std::size_t i = 0; i < visit.path.size(); ++i) {
      before_.push_back(i < visit.inserted_from ? recall(visit.path[i]) : recall(visit.path[i], visit.keys[i]));
      if (known == i && before_[i].known) ++known;
    }
    learn(visit, describe(visit, known));
  }

  // All of the path was visited in this tick before.
  bool is_repeated(const PathAccess& visit) {
    return visit.inserted_from == visit.path.size() && last_tick(visit.path.back()) == now();
  }

  Before recall(NodeId found) { return recall(blocks_[found], last_tick(found)); }
  Before recall(NodeId inserted, NodeKey key) {
    if (inserted >= blocks_.size()) resize_tightly(blocks_, inserted + std::size_t{1});
    const auto ghost = ghosts_.take(key);
    blocks_[inserted] = ghost ? ghost->block : Block();
    return ghost ? recall(blocks_[inserted], ghost->last_tick) : Before();
  }
  // Ends the block's sample; its visits are then those before this tick.
  Before recall(Block& block, std::uint32_t last_tick) {
    const bool this_tick = last_tick == now();
    model_->end(std::exchange(block.sample, HazardModel::kNoSample), now(), !this_tick);
    if (this_tick) {
      --block.visits;
    } else {
      block.before_tick = last_tick;
    }
    return {block.before_tick, true, this_tick};
  }

  HazardModel::Visit describe(const PathAccess& visit, std::size_t known) const {
    HazardModel::Visit seen = {.fresh_blocks = static_cast<std::uint32_t>(visit.path.size() - known),
                               .answer_tokens = visit.answer_tokens};
    if (known == 0) return seen;
    const Block& last = blocks_[visit.path[known - 1]];
    const Before& before = before_[known - 1];
    seen.turn = before.this_tick ? last.turn : last.passed ? 0 : std::min(last.turn + 1, 0xFF);
    seen.gap = now() - before.last_tick;
    return seen;
  }

  // One of every run of blocks that are alike begins a sample.
  void learn(const PathAccess& visit, HazardModel::Visit seen) {
    const std::size_t length = visit.path.size();
    std::size_t run = 0;
    for (std::size_t i = 0; i < length; ++i) {
      Block& block = blocks_[visit.path[i]];
      seen.visits = block.visits;
      seen.partial = visit.last_is_partial && i + 1 == length;
      block.cell = model_->cell(seen);
      block.turn = static_cast<std::uint8_t>(seen.turn);
      block.visits = static_cast<std::uint16_t>(std::min(block.visits + 1, 0xFFFF));
      block.passed = block.passed || i + 1 + (visit.last_is_partial ? 1 : 0) < length;
      if (block.cell != blocks_[visit.path[run]].cell || before_[i].last_tick != before_[run].last_tick) {
        sample(visit, run, i);
        run = i;
      }
    }
    sample(visit, run, length);
  }
  void sample(const PathAccess& visit, std::size_t from, std::size_t to) {
    if (options_.learning == HazardLearning::kNothing) return;
    const std::uint64_t lot = ((visit.keys[from] + options_.seed) * 0x9E3779B97F4A7C15u) >> 32;
    Block& block = blocks_[visit.path[from + lot % (to - from)]];
    block.sample = model_->begin(block.cell, now());
  }

  void arrive(NodeId id, std::uint8_t) override { place(id); }
  void hit(NodeId id) override { place(id); }
  void became_leaf(NodeId id) override { rank(id); }

  NodeId choose() override {
    for (;;) {
      const NodeId first = leaves().first();
      if (first == kNoNode) return kNoNode;
      const Rank current = rank_of(first);
      if (!(leaves().rank(first) < current)) return first;
      leaves().put(first, 0, current);
    }
  }

  void leaving(NodeId id, bool) override {
    if (ghosts_.size() == options_.ghosts_max) model_->end(ghosts_.forget_oldest()->block.sample, now(), false);
    if (const auto old = ghosts_.take(key(id))) model_->end(old->block.sample, now(), false);
    ghosts_.insert(key(id), {blocks_[id], last_tick(id)});
  }

  Rank rank_of(NodeId id) {
    return {model_->density(blocks_[id].cell, std::max(now() - last_tick(id), 1u)), last_tick(id)};
  }
  void rank(NodeId id) { leaves().put(id, 0, rank_of(id)); }
  // A node with children is ranked when the last one goes, in whose place it then finds itself.
  void place(NodeId id) {
    if (is_leaf(id)) {
      rank(id);
    } else {
      leaves().put(id, 0, {});
    }
  }

  void rank_in_turn() {
    const auto all = leaves().leaves(0);
    for (std::size_t i = 0; i < kRankedPerRequest && i < all.size(); ++i) {
      last_ranked_ = (last_ranked_ + 1) % all.size();
      rank(all[last_ranked_]);
    }
  }

  void fit() {
    const std::uint64_t history = std::min(tick(), kHistoryMax);
    const std::uint64_t until_next = std::max(kFirstFit, history / kFitsPerHistory);
    model_->fit(now(), static_cast<float>(history) / static_cast<float>(history + until_next));
    next_fit_ = tick() + until_next;
    const auto all = leaves().leaves(0);
    for (const NodeId id : std::vector(all.begin(), all.end())) rank(id);
  }

  std::shared_ptr<HazardModel> model_;
  HazardOptions options_;
  GhostTable<Ghost> ghosts_;
  std::vector<Block> blocks_;   // by NodeId
  std::vector<Before> before_;  // of the path at hand
  std::uint64_t next_fit_ = kFirstFit;
  std::uint64_t ranked_tick_ = 0;
  std::size_t last_ranked_ = 0;  // among the leaves, in their heap's order
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_hazard(std::shared_ptr<HazardModel> model, const HazardOptions& options) {
  return std::make_unique<Hazard>(std::move(model), options);
}

std::uint64_t hazard_ghosts(std::uint64_t capacity_blocks) {
  return std::max(kGhostsPerBlock * capacity_blocks, kGhostsMin);
}

std::unique_ptr<EvictionPolicy> make_hazard(const EvictionOptions& options) {
  return make_hazard(std::make_shared<HazardModel>(),
                     {.ghosts_max = hazard_ghosts(options.capacity_blocks), .seed = options.seed});
}

}  // namespace shale
