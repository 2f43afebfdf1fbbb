// One context's exact blocks and everything that a set of methods needs to rank it: computed once, for all of them.
#pragma once

#include <span>
#include <string>

#include "engine/engine.h"
#include "profile/feed.h"

namespace shale {

struct ExactContext {
  Sequence sequence;
  NewRun run;  // with attention statistics
};

// What the scorers of all methods read together. kInvalidArgument for an unknown scorer.
Result<ScorerNeeds> needs_of(const Cache& cache, std::span<const Method> methods);

struct ExactContextOptions {
  std::string label = {};  // for people
  bool store = true;       // a context of whole blocks is stored
};

// The blocks are fetched where keys and values are all that is needed, else the context is computed, in the shapes that
// a request would compute it in, and repeated where needs.repeat_attention says so. Owns the engine meanwhile.
// kInvalidArgument where the model lacks what is needed (a calibration) or has no room to repeat; kFull when the pool
// cannot hold the context.
Result<ExactContext> exact_context(Engine& engine, std::span<const Token> context, const ScorerNeeds& needs,
                                   const ExactContextOptions& options, const Stop& stop = {});

}  // namespace shale
