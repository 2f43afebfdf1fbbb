#include "eviction/segments.h"

namespace shale {

void Segments::put(NodeId node, std::uint8_t segment) {
  move(node, segment);
  for (; segment > 0 && leaves_.size(segment) > sizes_[segment]; --segment) move(ends_[segment].oldest, segment - 1);
}

void Segments::move(NodeId node, std::uint8_t segment) {
  if (leaves_.contains(node)) unlink(node);
  NodeId& youngest = ends_[segment].youngest;
  links_[node] = {.older = youngest};
  (youngest == kNoNode ? ends_[segment].oldest : links_[youngest].younger) = node;
  youngest = node;
  leaves_.put(node, segment, ++serial_);
}

void Segments::unlink(NodeId node) {
  Ends& ends = ends_[leaves_.queue(node)];
  const Link link = links_[node];
  (link.older == kNoNode ? ends.oldest : links_[link.older].younger) = link.younger;
  (link.younger == kNoNode ? ends.youngest : links_[link.younger].older) = link.older;
}

}  // namespace shale
