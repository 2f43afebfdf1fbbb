// Every policy again, written as its source has it: lists of nodes and scans for the first leaf.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "eviction/frequency_sketch.h"
#include "eviction/tree.h"

namespace shale {

using Ids = std::deque<NodeId>;  // the next to go in front

class Twin {
 public:
  Twin(const Tree& tree, std::size_t capacity) : tree_(tree), capacity_(capacity) {}
  virtual ~Twin() = default;

  // Every visit, in this order: newcomers of the one before take their places; new keys are looked up; hits count.
  virtual void arriving(NodeId) {}
  virtual void arrive(NodeId) {}
  virtual void hit(NodeId) {}
  virtual NodeId victim() = 0;  // kNoNode where there is none among those that arrived
  virtual void gone(NodeId) {}  // still in the tree
  virtual bool newcomers_wait() const { return true; }

 protected:
  NodeId first_leaf(const Ids& ids) const {
    const auto leaf = std::ranges::find_if(ids, [&](NodeId id) { return tree_.is_leaf(id); });
    return leaf == ids.end() ? kNoNode : *leaf;
  }
  // Takes the key out of the ghosts; whether it was there.
  static bool take(std::deque<NodeKey>& ghosts, NodeKey key) { return std::erase(ghosts, key) > 0; }
  static void add_ghost(std::deque<NodeKey>& ghosts, NodeKey key, std::size_t at_most) {
    take(ghosts, key);
    ghosts.push_back(key);
    if (ghosts.size() > at_most) ghosts.pop_front();
  }

  const Tree& tree_;
  const std::size_t capacity_;
};

// The leaf of the lowest rank by a scan; all nodes compete at once, as a tree's own counts make the rank.
template <class Rank>
class RankTwin final : public Twin {
 public:
  RankTwin(const Tree& tree, Rank rank) : Twin(tree, 0), rank_(std::move(rank)) {}
  bool newcomers_wait() const override { return false; }
  NodeId victim() override {
    NodeId lowest = kNoNode;
    for (const auto& [id, node] : tree_.nodes()) {
      if (tree_.is_leaf(id) && (lowest == kNoNode || rank_(node, tree_.node(lowest)))) lowest = id;
    }
    return lowest;
  }

 private:
  Rank rank_;  // (a, b): a goes before b
};

class LruKTwin final : public Twin {
 public:
  using Twin::Twin;
  bool newcomers_wait() const override { return false; }
  void arrive(NodeId id) override {
    const NodeKey key = tree_.node(id).key;
    visits_[id] = {};
    if (take(ghosts_, key)) visits_[id].push_back(last_visit_[key]);
    hit(id);
  }
  void hit(NodeId id) override { visits_[id].push_back(tree_.tick()); }
  NodeId victim() override {
    const auto second_last = [&](NodeId id) { return visits_[id].size() < 2 ? 0 : *(visits_[id].end() - 2); };
    NodeId lowest = kNoNode;
    for (const auto& [id, node] : tree_.nodes()) {
      if (!tree_.is_leaf(id)) continue;
      if (lowest == kNoNode ||
          std::pair(second_last(id), visits_[id].back()) < std::pair(second_last(lowest), visits_[lowest].back())) {
        lowest = id;
      }
    }
    return lowest;
  }
  void gone(NodeId id) override {
    add_ghost(ghosts_, tree_.node(id).key, 4 * capacity_);
    last_visit_[tree_.node(id).key] = visits_[id].back();
  }

 private:
  std::map<NodeId, std::vector<std::uint64_t>> visits_;
  std::map<NodeKey, std::uint64_t> last_visit_;
  std::deque<NodeKey> ghosts_;
};

class FifoTwin final : public Twin {
 public:
  using Twin::Twin;
  void arrive(NodeId id) override { queue_.push_back(id); }
  NodeId victim() override { return first_leaf(queue_); }
  void gone(NodeId id) override { std::erase(queue_, id); }

 private:
  Ids queue_;
};

class GdsfTwin final : public Twin {
 public:
  using Twin::Twin;
  void arrive(NodeId id) override { hit(id); }
  void hit(NodeId id) override {
    const Tree::Node& node = tree_.node(id);
    const double cost = 1 + static_cast<double>(node.depth - 1) / 64;
    score_[id] = inflation_ + static_cast<double>(node.visits) * cost;
    std::erase(by_visit_, id);
    by_visit_.push_back(id);
  }
  NodeId victim() override {
    NodeId lowest = kNoNode;
    for (const NodeId id : by_visit_) {
      if (tree_.is_leaf(id) && (lowest == kNoNode || score_[id] < score_[lowest])) lowest = id;
    }
    return lowest;
  }
  void gone(NodeId id) override {
    inflation_ = score_[id];
    std::erase(by_visit_, id);
  }

 private:
  std::map<NodeId, double> score_;
  Ids by_visit_;
  double inflation_ = 0;
};

class SieveTwin final : public Twin {
 public:
  using Twin::Twin;
  void arrive(NodeId id) override {
    // A hand beyond the last leaf begins again before anything newer lies there.
    if (at_or_after(hand_) == kNoNode) hand_ = 0;
    place_[id] = ++places_;
    visited_[id] = false;
  }
  void hit(NodeId id) override { visited_[id] = true; }
  NodeId victim() override {
    for (;;) {
      NodeId leaf = at_or_after(hand_);
      if (leaf == kNoNode) leaf = at_or_after(0);
      if (leaf == kNoNode) return kNoNode;
      hand_ = place_[leaf];
      if (!visited_[leaf]) return leaf;
      visited_[leaf] = false;
      ++hand_;
    }
  }
  void gone(NodeId id) override { place_.erase(id); }

 private:
  NodeId at_or_after(std::uint64_t hand) const {
    NodeId next = kNoNode;
    for (const auto& [id, place] : place_) {
      if (place >= hand && tree_.is_leaf(id) && (next == kNoNode || place < place_.at(next))) next = id;
    }
    return next;
  }

  std::map<NodeId, std::uint64_t> place_;
  std::map<NodeId, bool> visited_;
  std::uint64_t hand_ = 0, places_ = 0;
};

class S3FifoTwin final : public Twin {
 public:
  using Twin::Twin;
  void arriving(NodeId id) override { to_main_[id] = take(ghosts_, tree_.node(id).key); }
  void arrive(NodeId id) override {
    visits_[id] = 0;
    const bool warm_up = !full_ && small_.size() >= capacity_ / 10;
    (to_main_[id] || warm_up ? main_ : small_).push_back(id);
  }
  void hit(NodeId id) override { visits_[id] = std::min(visits_[id] + 1, 3); }
  NodeId victim() override {
    full_ = true;
    for (;;) {
      const NodeId small = first_leaf(small_), main = first_leaf(main_);
      if (main != kNoNode && (small == kNoNode || main_.size() > capacity_ - capacity_ / 10)) {
        if (visits_[main] == 0) return main;
        --visits_[main];
        std::erase(main_, main);
        main_.push_back(main);
      } else {
        if (small == kNoNode || visits_[small] < 2) return small;
        visits_[small] = 0;
        std::erase(small_, small);
        main_.push_back(small);
      }
    }
  }
  void gone(NodeId id) override {
    if (std::erase(small_, id)) add_ghost(ghosts_, tree_.node(id).key, capacity_ * 9 / 10);
    std::erase(main_, id);
  }

 private:
  Ids small_, main_;
  std::map<NodeId, int> visits_;
  std::map<NodeId, bool> to_main_;
  bool full_ = false;
  std::deque<NodeKey> ghosts_;
};

class ArcTwin final : public Twin {
 public:
  using Twin::Twin;
  void arriving(NodeId id) override {
    const NodeKey key = tree_.node(id).key;
    const double b1 = static_cast<double>(b1_.size()), b2 = static_cast<double>(b2_.size());
    in_b2_ = false;
    ghost_[id] = true;
    if (take(b1_, key)) {
      p_ = std::min(static_cast<double>(capacity_), p_ + std::max(b2 / b1, 1.0));
    } else if (take(b2_, key)) {
      p_ = std::max(0.0, p_ - std::max(b1 / b2, 1.0));
      in_b2_ = true;
    } else {
      ghost_[id] = false;
    }
  }
  void arrive(NodeId id) override {
    if (ghost_[id]) {
      t2_.push_back(id);
      return;
    }
    if (t1_.size() + b1_.size() >= capacity_) {
      if (!b1_.empty()) b1_.pop_front();
    } else if (t1_.size() + b1_.size() + t2_.size() + b2_.size() >= 2 * capacity_ && !b2_.empty()) {
      b2_.pop_front();
    }
    t1_.push_back(id);
  }
  void hit(NodeId id) override {
    std::erase(t1_, id);
    std::erase(t2_, id);
    t2_.push_back(id);
  }
  NodeId victim() override {
    const NodeId t1 = first_leaf(t1_), t2 = first_leaf(t2_);
    const double size = static_cast<double>(t1_.size());
    if (t1 != kNoNode && (t2 == kNoNode || size > p_ || (in_b2_ && size == p_))) return t1;
    return t2;
  }
  void gone(NodeId id) override {
    if (std::erase(t1_, id)) add_ghost(b1_, tree_.node(id).key, capacity_);
    if (std::erase(t2_, id)) add_ghost(b2_, tree_.node(id).key, 2 * capacity_);
  }

 private:
  Ids t1_, t2_;
  std::deque<NodeKey> b1_, b2_;
  std::map<NodeId, bool> ghost_;
  double p_ = 0;
  bool in_b2_ = false;
};

class SlruTwin final : public Twin {
 public:
  using Twin::Twin;
  void arrive(NodeId id) override {
    std::size_t segment = 0;
    while (segment < 4 && segments_[segment].size() >= capacity_ / 4) ++segment;
    segments_[segment % 4].push_back(id);
  }
  void hit(NodeId id) override {
    std::size_t segment = 0;
    while (!std::erase(segments_[segment], id)) ++segment;
    segment = std::min<std::size_t>(segment + 1, 3);
    segments_[segment].push_back(id);
    for (; segment > 0 && segments_[segment].size() > capacity_ / 4; --segment) {
      segments_[segment - 1].push_back(segments_[segment].front());
      segments_[segment].pop_front();
    }
  }
  NodeId victim() override {
    for (const Ids& segment : segments_) {
      if (const NodeId leaf = first_leaf(segment); leaf != kNoNode) return leaf;
    }
    return kNoNode;
  }
  void gone(NodeId id) override {
    for (Ids& segment : segments_) std::erase(segment, id);
  }

 private:
  Ids segments_[4];
};

class WTinyLfuTwin final : public Twin {
 public:
  WTinyLfuTwin(const Tree& tree, std::size_t capacity)
      : Twin(tree, capacity), main_blocks_(capacity - std::max<std::size_t>(1, capacity / 100)), sketch_(capacity) {}
  void arriving(NodeId id) override { sketch_.add(tree_.node(id).key); }
  void arrive(NodeId id) override { window_.push_back(id); }
  void hit(NodeId id) override {
    sketch_.add(tree_.node(id).key);
    if (std::erase(window_, id)) return window_.push_back(id);
    std::erase(probation_, id);
    std::erase(protected_, id);
    protected_.push_back(id);
    if (protected_.size() > main_blocks_ * 4 / 5) {
      probation_.push_back(protected_.front());
      protected_.pop_front();
    }
  }
  NodeId victim() override {
    for (;;) {
      NodeId main = first_leaf(probation_);
      if (main == kNoNode) main = first_leaf(protected_);
      if (window_.empty()) return main;
      const NodeId candidate = window_.front();
      const auto admit = [&] {
        window_.pop_front();
        probation_.push_back(candidate);
      };
      if (probation_.size() + protected_.size() < main_blocks_) {
        admit();
      } else if (main == kNoNode) {
        return first_leaf(window_);
      } else if (tree_.is_leaf(candidate) && seen(candidate) <= seen(main)) {
        return candidate;
      } else {
        admit();
        return main;
      }
    }
  }
  void gone(NodeId id) override {
    for (Ids* ids : {&window_, &probation_, &protected_}) std::erase(*ids, id);
  }

 private:
  unsigned seen(NodeId id) const { return sketch_.estimate(tree_.node(id).key); }

  std::size_t main_blocks_;
  FrequencySketch sketch_;
  Ids window_, probation_, protected_;
};

}  // namespace shale
