// Everything a command needs to answer requests, built from options.
//
//   Serving ── owns ──> Model, Tokenizer   weights and words of one GGUF file
//                   ──> EngineStack        pool, cache and engine over them
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "quantizers/cachegen_tables.h"
#include "report/output.h"
#include "runtime/engine_stack.h"
#include "scoring/calibration.h"
#include "tiers/tiers.h"

namespace shale {

struct ModelChoice {
  std::string model = "smollm2-135m";  // a registered name or a path to a GGUF file
  std::string weights = "fast";        // "file" or "fast"
  std::uint32_t threads = 0;           // 0: the machine's cores
  std::uint32_t block_size = 16;
  std::string kv_cache_dtype = "fp16";  // "fp16" or "int8": what pages hold while attention reads them
};

// Where bytes lie: tiers by their URLs or, where there are none, what the other fields say in short.
struct TierChoice {
  std::vector<std::string> urls;              // fast to slow
  std::optional<std::uint64_t> memory_bytes;  // 0: no memory tier; unset: an eighth of memory, at most 1 GiB
  std::optional<std::uint64_t> disk_bytes;    // 0: no disk tier; unset: 8 GiB
  std::string cache_dir;                      // empty: ${XDG_CACHE_HOME:-~/.cache}/shale/kv
  std::string remote;                         // empty: no remote tier
  std::optional<std::uint64_t> remote_bytes;  // unset: unlimited
  std::optional<Throttle> throttle_disk, throttle_remote;
};

struct ServingOptions {
  ModelChoice model;
  TierChoice tiers;
  std::optional<std::uint64_t> pool_bytes;  // unset: a quarter of memory, at most 2 GiB
  CacheOptions cache;
  std::string quality_metric = "agreement";  // quality_metric_names()
  std::string calibration;                   // file that `shale calibrate` made; empty: none
  std::string tables;                        // cachegen's, likewise
  EngineOptions engine;
  std::optional<std::uint32_t> kv_event_block;  // tokens, 0: the pool's; unset: the cache tells nobody what lies where
  std::string faults;  // a file that says what is wrong now (tier/faults.h); empty: nothing is put in the way
  bool store = true;   // false: no tiers; nothing is looked up on them or left behind
};

inline constexpr const char* kMetadataStoreName = "catalogue.sqlite";

std::filesystem::path cache_folder(const TierChoice& choice);
// The tiers chosen, fast to slow; maybe none. kInvalidArgument where URLs and short options are given together, and
// for a size or speed of a tier that the others leave out.
Result<std::vector<TierSpec>> tier_specs(const TierChoice& choice);
// The file in the first folder of this machine; nothing where no tier lies in one.
std::optional<std::filesystem::path> metadata_store_file(const std::vector<TierSpec>& specs);

// `agree`: ModelOptions::agree.
using WeightAgreement = decltype(ModelOptions::agree);
Result<std::unique_ptr<Model>> open_model(const ModelChoice& choice, WeightAgreement agree = {},
                                          std::uint32_t batch_tokens_max = ModelOptions().batch_tokens_max);

// What was to be stored, and is not everywhere where it was to lie.
struct Unstored {
  std::uint64_t saves = 0;  // of a context, or of one in the form that a request names
  std::uint64_t bytes = 0;  // about (StoreStats::bytes_left)
};

class Serving {
 public:
  static Result<std::unique_ptr<Serving>> open(const ServingOptions& options, const OutputOptions& output);
  ~Serving();

  Model& model() { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  PagePool& pool() { return stack_->pool(); }
  Cache& cache() { return stack_->cache(); }
  Engine& engine() { return stack_->engine(); }
  const Clock& clock() const { return clock_; }

  // Finishes what was queued: encoding, writing, placing. Stops early when interrupted, which leaves the folder whole.
  Status finish_background(const OutputOptions& output);
  // Finishes storing alone, for so long at most and until interrupted: moves that wait for room, or are tried again and
  // again, end with the process. What is left: nothing where all is stored.
  std::optional<Unstored> finish_storing(const OutputOptions& output, double seconds);

 private:
  Serving() = default;
  // `specs`: none where nothing is to be stored; `tiers` are theirs.
  Status open_stack(EngineStackOptions options, const std::string& model_name, const std::string& faults,
                    const std::optional<std::vector<TierSpec>>& specs, std::vector<StoreTier> tiers);
  std::optional<Unstored> unstored() const;

  RealClock clock_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<Calibration> calibration_;
  std::optional<CachegenTables> tables_;
  std::unique_ptr<EngineStack> stack_;
};

}  // namespace shale
