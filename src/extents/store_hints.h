// What a caller says of blocks that it saves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "codec/views/kv_view.h"
#include "core/error.h"
#include "core/hash.h"
#include "scoring/attention_statistics.h"

namespace shale {

struct StoreHints {
  std::string tenant = {};
  // The view's first block is keys[first_block]; blocks before it are named only, and must be there to be of use.
  std::uint32_t first_block = 0;
  // Blocks after which an extent ends: of a system prompt, a document, a turn. Ascending, within keys.
  std::vector<std::uint32_t> boundaries = {};
  Method method = Method::full();
  double keep = 1;  // where the store has them by this method with less kept, it stays so
  // The tokens that are saved together and that qualities are known of (StorePlacement). Zero: made from the parent of
  // the view's first block and the last key.
  Hash128 run = {};
  // Rankings ("scorer" or "budget:scorer") kept beside exact extents, of the whole view, so that they can be compressed
  // when attention statistics are gone. Rankings whose needs are not met are left out.
  std::vector<std::string> rankings = {};
  double quality = 1;      // of that method at that keep, as measured or believed; for StoreNeeds (store.h)
  double recompute_s = 0;  // what computing these blocks cost; 0: unknown. What costs little is given up first
  std::string label = {};  // for people
  bool pin = false;        // as by pin()
  // Since now; 0: none. Known to this process, and to those that share a folder's index: others that find the blocks on
  // a shared tier, and this one once it has started anew, keep them for as long as they lie there.
  double time_to_live_s = 0;
  std::span<const std::int32_t> tokens = {};  // the chain's, from its first; copied. Compared when loading
  AttentionStatistics statistics = {};        // of the view's tokens, for scorers that read more than keys and values

  // What other processes could not read back, or such blocks cannot be encoded by: kInvalidArgument, kUnsupported.
  Status check(const KvGeometry& geometry) const;
};

}  // namespace shale
