// The options of models, tiers and caches, for every command that has them.
#pragma once

#include "cli/command_line.h"
#include "runtime/serving.h"

namespace shale {

void add_model_options(Command command, ModelChoice& choice);
// --kv-cache-dtype, for commands that answer requests; the others need exact pages.
void add_kv_cache_dtype_option(Command command, ModelChoice& choice);
// --tiers, and in short --cache-dir, --remote and their sizes.
void add_folder_options(Command command, TierChoice& choice);
// What utility is made of, and what demotion divides by: --alpha, --divide-by-bytes and --half-life.
void add_utility_options(Command command, CacheOptions& cache);
// All of them: model, pool, tiers, placement.
void add_serving_options(Command command, ServingOptions& options);

}  // namespace shale
