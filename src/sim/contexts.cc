#include "sim/contexts.h"

#include <algorithm>
#include <utility>

namespace shale {

Contexts::Contexts(const Trace& trace) : of_block_(trace.unique_blocks(), kNoContext) {
  std::vector<std::uint8_t> followers(trace.unique_blocks());  // up to two: more tell nothing more
  std::vector<std::uint8_t> ends(trace.unique_blocks());
  std::vector<std::uint32_t> missing(trace.unique_blocks());  // tokens of a block that is not full
  for (const BlockId parent : trace.parents) {
    if (parent != kNoBlock && followers[parent] < 2) ++followers[parent];
  }
  for (const TraceRequest& request : trace.requests) {
    if (request.prompt_blocks == 0) continue;
    const BlockId last = trace.prompt(request).back();
    ends[last] = 1;
    if (trace.last_is_partial(request)) {
      missing[last] = request.prompt_blocks * trace.block_tokens - request.input_tokens;
    }
  }
  // A block comes after its parent, by number too.
  for (BlockId block = 0; block < of_block_.size(); ++block) {
    const BlockId before = trace.parents[block];
    if (before == kNoBlock || followers[before] > 1 || ends[before]) {
      of_block_[block] = static_cast<ContextId>(contexts_.size());
      Context context;
      if (before != kNoBlock) {
        context.parent = of_block_[before];
        context.first_token = contexts_[context.parent].first_token + contexts_[context.parent].tokens;
      }
      contexts_.push_back(context);
    } else {
      of_block_[block] = of_block_[before];
    }
    contexts_[of_block_[block]].tokens += trace.block_tokens - missing[block];
  }
}

Prompt Contexts::prompt(const Trace& trace, const TraceRequest& request) const {
  std::vector<ContextId> path;
  std::uint64_t named = 0;
  ContextId id = request.prompt_blocks > 0 ? of_block_[trace.prompt(request).back()] : kNoContext;
  for (; id != kNoContext; id = contexts_[id].parent) {
    path.push_back(id);
    named += contexts_[id].tokens;
  }
  std::ranges::reverse(path);
  return {std::move(path), std::max<std::uint64_t>(request.input_tokens, named) - named};
}

}  // namespace shale
