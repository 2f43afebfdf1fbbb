// The options of models, tiers and caches, for every command that has them.
#pragma once

#include "cli/cli11_fwd.h"
#include "runtime/serving.h"

namespace shale {

void add_model_options(CLI::App& command, ModelChoice& choice);
// --kv-cache-dtype, for commands that answer requests; the others need exact pages.
void add_kv_cache_dtype_option(CLI::App& command, ModelChoice& choice);
// --tiers, and in short --cache-dir, --remote and their sizes.
void add_folder_options(CLI::App& command, TierChoice& choice);
// What utility is made of, and what demotion divides by: --alpha, --divide-by-bytes and --half-life.
void add_utility_options(CLI::App& command, CacheOptions& cache);
// All of them: model, pool, tiers, placement.
void add_serving_options(CLI::App& command, ServingOptions& options);

}  // namespace shale
