// A trace's prompts cut into contexts: runs of blocks that no prompt enters, leaves or ends inside. They are the edges
// of the radix tree of all prompts, and stand for the prefixes that a cache of whole contexts stores: a system prompt,
// a document, a chat's next turn. The cut knows the whole trace; what is stored and found does not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace shale {

using ContextId = std::uint32_t;
inline constexpr ContextId kNoContext = ~ContextId{0};

struct Context {
  ContextId parent = kNoContext;
  std::uint32_t first_token = 0;  // its depth
  std::uint32_t tokens = 0;
};

class Contexts {
 public:
  explicit Contexts(const Trace& trace);

  std::span<const Context> all() const { return contexts_; }
  // The contexts that a request's prompt is made of, root side first.
  std::vector<ContextId> path(const Trace& trace, const TraceRequest& request) const;

 private:
  std::vector<Context> contexts_;
  std::vector<ContextId> of_block_;  // by BlockId
};

}  // namespace shale
