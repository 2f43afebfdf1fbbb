// How a scorer ranks a whole context.
#pragma once

#include <vector>

#include "profile/exact_context.h"

namespace shale {

// [layers that are ranked][kv_heads][tokens], higher = keep, by the scorer of that name; the cache says which model
// computed the context, and so which layers are ranked (ranking.h). kInvalidArgument for an unknown scorer or an option
// out of range, and for what the attention statistics lack.
Result<std::vector<float>> score_context(Engine& engine, const ExactContext& context, std::string_view scorer,
                                         const ScorerOptions& options);

}  // namespace shale
