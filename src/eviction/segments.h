// Segments of nodes by recency, each with its share of the room: what overflows one goes to the next lower, least
// recent first and children before their parents, and the lowest takes everything. Victims are leaves of the lowest
// segment that has any.
//
// Segment s is queue s of the LeafQueues, in which leaves wait in the same order. 8 bytes a node.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eviction/leaf_queues.h"

namespace shale {

class Segments {
 public:
  // `sizes` of the segments, lowest first.
  Segments(LeafQueues<std::uint64_t>& leaves, std::vector<std::uint64_t> sizes)
      : leaves_(leaves), sizes_(std::move(sizes)), ends_(sizes_.size()) {}

  void grow(std::size_t nodes) { resize_tightly(links_, nodes); }

  bool has_room(std::uint8_t segment) const { return leaves_.size(segment) < sizes_[segment]; }
  // The node is the segment's most recent, out of the segment where it was; what overflows moves down.
  void put(NodeId node, std::uint8_t segment);
  // The node is about to be removed from its queue.
  void unlink(NodeId node);
  NodeId least_recent(std::uint8_t segment) const { return ends_[segment].oldest; }

 private:
  struct Link {
    NodeId older = kNoNode, younger = kNoNode;
  };
  struct Ends {
    NodeId oldest = kNoNode, youngest = kNoNode;
  };

  void move(NodeId node, std::uint8_t segment);

  LeafQueues<std::uint64_t>& leaves_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Ends> ends_;
  std::vector<Link> links_;
  std::uint64_t serial_ = 0;
};

}  // namespace shale
