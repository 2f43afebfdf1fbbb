#include "cli/serving_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "cache/planner_choice.h"
#include "cli/option_types.h"
#include "core/units.h"
#include "eviction/policies.h"
#include "profile/metrics/quality_metric.h"

namespace shale {
namespace {

void add_tier_urls(Command command, TierChoice& choice) {
  std::vector<std::string> examples;
  for (const TierScheme& scheme : tier_schemes()) examples.push_back(scheme.example());
  add_tiers(command, "--tiers", choice.urls,
            fmt::format("Tiers by URL, fast to slow, up to eight, in place of the options below: {}",
                        fmt::join(examples, ", ")))
      .envname("SHALE_TIERS")
      .group("Tiers");
}

void add_folders(Command command, TierChoice& choice) {
  const char* group = "Tiers";
  add_size(command, "--disk-size", choice.disk_bytes, "Capacity of the disk tier; 0: none", "8GiB")
      .envname("SHALE_DISK_SIZE")
      .group(group);
  command
      .add_option("--cache-dir", choice.cache_dir,
                  "Folder of the disk tier (default: shale/kv in $XDG_CACHE_HOME or ~/.cache)")
      .envname("SHALE_CACHE_DIR")
      .type_name("FOLDER")
      .group(group);
  command
      .add_option("--remote", choice.remote,
                  "Folder of the remote tier: any mounted path, shared by many (default: none)")
      .envname("SHALE_REMOTE")
      .type_name("FOLDER")
      .group(group);
  add_size(command, "--remote-size", choice.remote_bytes, "Capacity of the remote tier", "unlimited")
      .envname("SHALE_REMOTE_SIZE")
      .group(group);
}

}  // namespace

void add_model_options(Command command, ModelChoice& choice) {
  const char* group = "Model";
  command.add_option("--model", choice.model, "A name of `shale model ls`, or a path to a GGUF file")
      .envname("SHALE_MODEL")
      .type_name("NAME|PATH")
      .capture_default_str()
      .group(group);
  command
      .add_option("--weights", choice.weights,
                  "Run weights in the file's types, or in the fastest as measured when first loaded")
      .envname("SHALE_WEIGHTS")
      .one_of({"file", "fast"})
      .type_name("file|fast")
      .capture_default_str()
      .group(group);
  command.add_option("--threads", choice.threads, "Threads that compute; 0: one a core")
      .envname("SHALE_THREADS")
      .range(0, 1024)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--block-size", choice.block_size, "Tokens of a KV block: 8, 16, 32 or 64")
      .envname("SHALE_BLOCK_SIZE")
      .one_of({"8", "16", "32", "64"})
      .type_name("N")
      .capture_default_str()
      .group(group);
}

void add_kv_cache_dtype_option(Command command, ModelChoice& choice) {
  command
      .add_option("--kv-cache-dtype", choice.kv_cache_dtype,
                  "What KV pages hold: fp16, or int8, where 1.9 times as many tokens fit and no answer is exact")
      .envname("SHALE_KV_CACHE_DTYPE")
      .one_of({"fp16", "int8"})
      .type_name("fp16|int8")
      .capture_default_str()
      .group("Model");
}

void add_folder_options(Command command, TierChoice& choice) {
  add_tier_urls(command, choice);
  add_folders(command, choice);
}

void add_utility_options(Command command, CacheOptions& cache) {
  const char* group = "Placement";
  command.add_option("--alpha", cache.alpha, "Seconds of waiting that one unit of quality is worth")
      .envname("SHALE_ALPHA")
      .type_name("SECONDS")
      .capture_default_str()
      .group(group);
  add_switch(command, "--divide-by-bytes", cache.planner_options.divide_by_bytes,
             "Planner shale, where a tier is full: on, what loses least utility per byte that it frees is given up "
             "(AdaptCache); off, what loses least (EvicPress)")
      .envname("SHALE_DIVIDE_BY_BYTES")
      .group(group);
  command
      .add_option("--half-life", cache.frequency_half_life_s,
                  "After which a use counts half in how often something is used; inf: uses are counted")
      .envname("SHALE_HALF_LIFE")
      .check([](const std::string& text) -> Status {
        if (parse_number(text).value_or(0) > 0) return {};
        return fail(ErrorCode::kInvalidArgument, "'{}' is not a time above 0", text);
      })
      .type_name("SECONDS")
      .capture_default_str()
      .group(group);
}

static void add_placement_options(Command command, ServingOptions& options) {
  const char* group = "Placement";
  command
      .add_option("--planner", options.cache.planner,
                  "What decides where contexts lie, and how compressed: " + planner_forms())
      .envname("SHALE_PLANNER")
      .check(known_planner())
      .type_name("PLANNER")
      .capture_default_str()
      .group(group);
  add_utility_options(command, options.cache);
  command
      .add_option("--quality-metric", options.quality_metric,
                  "What quality is measured, expected and demanded in: the full cache's tokens that are still the most "
                  "likely, or answers compared as texts. Profiles of one say nothing in another")
      .envname("SHALE_QUALITY_METRIC")
      .one_of(quality_metric_names())
      .type_name(fmt::format("{}", fmt::join(quality_metric_names(), "|")))
      .capture_default_str()
      .group(group);
  command.add_flag("--load-always", options.cache.load_always, "Load what is stored even where computing seems faster")
      .envname("SHALE_LOAD_ALWAYS")
      .group(group);
  add_switch(command, "--load-and-compute", options.cache.meet,
             "on: a prefix is computed from its front while it is loaded from its back, where that is sooner")
      .envname("SHALE_LOAD_AND_COMPUTE")
      .group(group);
  command.add_option("--methods", options.cache.methods, "Compression methods that the planner may choose besides full")
      .envname("SHALE_METHODS")
      .check(check_method)
      .delimiter(',')
      .type_name("METHOD,...")
      .default_str(fmt::format("{}", fmt::join(options.cache.methods, ",")))
      .group(group);
}

void add_serving_options(Command command, ServingOptions& options) {
  add_model_options(command, options.model);
  add_size(command, "--pool", options.pool_bytes, "Memory for the KV pages that attention reads",
           "a quarter of memory, at most 2GiB")
      .envname("SHALE_POOL")
      .group("Tiers");
  add_tier_urls(command, options.tiers);
  add_size(command, "--memory-size", options.tiers.memory_bytes, "Capacity of the memory tier; 0: none",
           "an eighth of memory, at most 1GiB")
      .envname("SHALE_MEMORY_SIZE")
      .group("Tiers");
  add_switch(command, "--prefix-cache", options.engine.prefix_cache,
             "off: every prompt is computed whole; neither pool nor tiers keep anything for later requests")
      .envname("SHALE_PREFIX_CACHE")
      .group("Tiers");
  command.add_option("--prefix-eviction", options.cache.eviction, "Which of the prefixes kept in the pool goes first")
      .envname("SHALE_PREFIX_EVICTION")
      .one_of(eviction_policy_names())
      .type_name("NAME")
      .capture_default_str()
      .group("Tiers");
  add_folders(command, options.tiers);
  add_throttle(command, "--throttle-disk", options.tiers.throttle_disk, "Emulate a slower disk: hdd, or 200MB/s,8ms")
      .envname("SHALE_THROTTLE_DISK")
      .group("Tiers");
  add_throttle(command, "--throttle-remote", options.tiers.throttle_remote, "Emulate a slower remote")
      .envname("SHALE_THROTTLE_REMOTE")
      .group("Tiers");

  command
      .add_option("--faults", options.faults,
                  "File that says which tiers fail, hang or are full now, and how wrong the clock is; for trying out "
                  "trouble (`shale bench chaos`)")
      .envname("SHALE_FAULTS")
      .type_name("FILE")
      .group("Tiers");

  command
      .add_option("--calibration", options.calibration,
                  "What `shale calibrate` learned of this model, for the scorer triattention")
      .envname("SHALE_CALIBRATION")
      .type_name("FILE")
      .group("Model");
  command
      .add_option("--cachegen-tables", options.tables,
                  "What `shale calibrate` learned of this model's keys and values, for the quantizer cachegen")
      .envname("SHALE_CACHEGEN_TABLES")
      .type_name("FILE")
      .group("Model");
  add_placement_options(command, options);
}

}  // namespace shale
