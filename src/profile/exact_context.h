// One context's exact pages and everything that a set of methods needs to rank it: computed once, for all of them.
#pragma once

#include <span>
#include <string>

#include "engine/engine.h"
#include "profile/feed.h"

namespace shale {

struct ExactContext {
  Sequence sequence;
  Cache::NewEntry entry;  // with observations
};

// What the scorers of all methods read together. kInvalidArgument for an unknown scorer.
Result<ScorerNeeds> needs_of(const Cache& cache, std::span<const Method> methods);

// The pages are fetched where the entry is known with enough observations, else the context is computed, in the shapes
// that a request would compute it in; it is repeated where needs.repeat_attention was not gathered before. What is new
// is stored with the entry. Owns the engine meanwhile. kInvalidArgument where the model lacks what is needed (a
// calibration) or has no room to repeat; kFull when the pool cannot hold the context.
Result<ExactContext> exact_context(Engine& engine, std::span<const Token> context, const ScorerNeeds& needs,
                                   const std::string& label, const Stop& stop = {});

}  // namespace shale
