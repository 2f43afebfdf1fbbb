#include "sim/contexts.h"

#include <algorithm>

namespace shale {

Contexts::Contexts(const Trace& trace) : of_block_(trace.unique_blocks(), kNoContext) {
  std::vector<std::uint8_t> followers(trace.unique_blocks());  // up to two: more tell nothing more
  std::vector<std::uint8_t> ends(trace.unique_blocks());
  std::vector<std::uint32_t> missing(trace.unique_blocks());  // tokens of a block that is not full
  for (const BlockId parent : trace.parents) {
    if (parent != kNoBlock && followers[parent] < 2) ++followers[parent];
  }
  for (const TraceRequest& request : trace.requests) {
    if (request.output_blocks > 0) ends[trace.conversation(request).back()] = 1;
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
        context.first_token = contexts_[context.parent].end();
      }
      contexts_.push_back(context);
    } else {
      of_block_[block] = of_block_[before];
    }
    contexts_[of_block_[block]].tokens += trace.block_tokens - missing[block];
  }
}

std::vector<ContextId> Contexts::path(std::span<const BlockId> blocks, ContextId above) const {
  std::vector<ContextId> path;
  for (ContextId id = blocks.empty() ? above : of_block_[blocks.back()]; id != above; id = contexts_[id].parent) {
    path.push_back(id);
  }
  std::ranges::reverse(path);
  return path;
}

Prompt Contexts::prompt(const Trace& trace, const TraceRequest& request) const {
  Prompt prompt{.path = path(trace.prompt(request))};
  const ContextId last = prompt.path.empty() ? kNoContext : prompt.path.back();
  const std::uint64_t named = last == kNoContext ? 0 : contexts_[last].end();
  prompt.unnamed_tokens = std::max<std::uint64_t>(request.input_tokens, named) - named;
  prompt.answer = path(trace.conversation(request), last);
  return prompt;
}

}  // namespace shale
