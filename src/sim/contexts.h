// A trace's prompts and answers cut into contexts: runs of blocks that none of them enters, leaves or ends inside. They
// are the edges of the radix tree of all, and stand for the prefixes that a cache of whole contexts stores: a system
// prompt, a document, a chat's next turn. The cut knows the whole trace; what is stored and found does not.
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

  std::uint32_t end() const { return first_token + tokens; }
};

// A request's prompt: contexts from the root side, then tokens in no block that the trace names.
struct Prompt {
  std::vector<ContextId> path;
  std::uint64_t unnamed_tokens = 0;
  std::vector<ContextId> answer = {};  // behind the path, where the trace tells its blocks
};

class Contexts {
 public:
  explicit Contexts(const Trace& trace);

  std::span<const Context> all() const { return contexts_; }
  Prompt prompt(const Trace& trace, const TraceRequest& request) const;

 private:
  // Those up to the last block, behind `above`, which is one of them or none.
  std::vector<ContextId> path(std::span<const BlockId> blocks, ContextId above = kNoContext) const;

  std::vector<Context> contexts_;
  std::vector<ContextId> of_block_;  // by BlockId
};

}  // namespace shale
