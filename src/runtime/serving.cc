#include "runtime/serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/interrupt.h"
#include "core/resources.h"
#include "core/text_file.h"
#include "core/units.h"
#include "core/user_folder.h"
#include "extents/agreement.h"
#include "extents/store_tiers.h"
#include "profile/metrics/quality_metric.h"
#include "profile/prior.h"
#include "runtime/model_registry.h"
#include "server/tier_news.h"
#include "tier/faults.h"

namespace shale {
namespace {

constexpr double kStoringNapS = 1e-3;  // while only I/O is left
constexpr double kReachableWithinS = 3, kReachableNapS = 0.01;

std::uint64_t memory_share(std::uint64_t parts, std::uint64_t bytes_max) {
  return std::min(usable_memory() / parts, bytes_max);
}

// The name of an option that was given in short; empty where none was.
std::string_view given_in_short(const TierChoice& choice) {
  if (choice.memory_bytes) return "--memory-size";
  if (choice.disk_bytes) return "--disk-size";
  if (!choice.cache_dir.empty()) return "--cache-dir";
  if (!choice.remote.empty()) return "--remote";
  if (choice.remote_bytes) return "--remote-size";
  if (choice.throttle_disk) return "--throttle-disk";
  return choice.throttle_remote ? "--throttle-remote" : "";
}

Result<Calibration> read_calibration(const std::string& path, const ModelInfo& model) {
  SHALE_ASSIGN(const std::string bytes, read_file(path));
  auto calibration = Calibration::parse(std::as_bytes(std::span(bytes)), model.checkpoint);
  if (!calibration) return fail_in("calibration " + path, std::move(calibration).error());
  const Status shape = calibration->check_shape(model.layers, model.query_heads, model.ropes[0].pairs());
  if (!shape) return fail_in("calibration " + path, shape.error());
  return calibration;
}

// Options about a tier that the others leave out.
Status check_used(const TierChoice& choice, bool has_disk) {
  const auto refuse = [](std::string_view option, std::string_view reason) -> Status {
    return fail(ErrorCode::kInvalidArgument,
                "{} does nothing {}, or leave {} out, also of the environment and the configuration file", option,
                reason, option);
  };
  const bool has_remote = !choice.remote.empty();
  if (choice.remote_bytes && !has_remote) return refuse("--remote-size", "without --remote FOLDER: name one");
  if (choice.throttle_remote && !has_remote) return refuse("--throttle-remote", "without --remote FOLDER: name one");
  if (choice.throttle_disk && !has_disk) return refuse("--throttle-disk", "with --disk-size 0: give the disk a size");
  return {};
}

Result<CachegenTables> read_tables(const std::string& path, const ModelInfo& model) {
  SHALE_ASSIGN(const std::string bytes, read_file(path));
  auto tables = CachegenTables::parse(std::as_bytes(std::span(bytes)), model.checkpoint);
  if (!tables) return fail_in("tables " + path, std::move(tables).error());
  const Status shape = tables->check_shape(model.layers, model.kv_heads, model.head_dim);
  if (!shape) return fail_in("tables " + path, shape.error());
  return tables;
}

}  // namespace

std::filesystem::path cache_folder(const TierChoice& choice) {
  return choice.cache_dir.empty() ? user_folder("XDG_CACHE_HOME", ".cache") / "kv"
                                  : std::filesystem::path(choice.cache_dir);
}

Result<std::vector<TierSpec>> tier_specs(const TierChoice& choice) {
  if (!choice.urls.empty()) {
    if (const std::string_view option = given_in_short(choice); !option.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--tiers names every tier: leave {} out, also of the environment and the configuration file, or say "
                  "it as part of a URL",
                  option);
    }
    return parse_tiers({choice.urls.begin(), choice.urls.end()});
  }
  const std::uint64_t disk_bytes = choice.disk_bytes.value_or(std::uint64_t{8} << 30);
  SHALE_TRY(check_used(choice, disk_bytes > 0));
  std::vector<TierSpec> specs;
  const std::uint64_t memory_bytes = choice.memory_bytes.value_or(memory_share(8, std::uint64_t{1} << 30));
  if (memory_bytes)
    specs.push_back({.scheme = "memory", .name = "memory", .capacity_bytes = memory_bytes, .place = {}});
  if (disk_bytes > 0) {
    specs.push_back({.scheme = "file",
                     .name = "disk",
                     .capacity_bytes = disk_bytes,
                     .place = cache_folder(choice),
                     .throttle = choice.throttle_disk});
  }
  if (!choice.remote.empty()) {
    specs.push_back({.scheme = "dir",
                     .name = "remote",
                     .capacity_bytes = choice.remote_bytes.value_or(kUnlimited),
                     .place = choice.remote,
                     .throttle = choice.throttle_remote});
  }
  SHALE_TRY(check_distinct(specs));
  return specs;
}

std::optional<std::filesystem::path> metadata_store_file(const std::vector<TierSpec>& specs) {
  const std::vector<TierScheme> schemes = tier_schemes();
  for (const TierSpec& spec : specs) {
    const auto scheme = std::ranges::find(schemes, spec.scheme, &TierScheme::scheme);
    if (scheme->local_folder) return std::filesystem::path(spec.place) / kMetadataStoreName;
  }
  return std::nullopt;
}

namespace {

// What was measured before; a metadata store of this process alone where none can be kept.
Result<std::unique_ptr<MetadataStore>> open_metadata_store(const std::vector<TierSpec>& specs,
                                                           const std::vector<StoreTier>& tiers,
                                                           const ModelRecord& model,
                                                           const MetadataStore::WallClock& wall_clock) {
  const auto file = metadata_store_file(specs);
  if (!file) return MetadataStore::open_in_memory(model.fingerprint, wall_clock);
  const auto of_file = std::ranges::find(tiers, file->parent_path(), &StoreTier::folder);
  const Tier* const tier = of_file == tiers.end() ? nullptr : of_file->tier.get();
  const auto reachable = [tier] { return !tier || (tier->reachable() && !tier->trouble()); };
  SHALE_ASSIGN(auto metadata_store, MetadataStore::open_late(*file, model, reachable, wall_clock));
  if (metadata_store->warning()) print_note("shale: " + metadata_store->warning()->message);
  return metadata_store;
}

// What routers are told that lies there; nothing of what other engines find as well.
std::optional<KvMedium> medium_of(const TierSpec& spec) {
  if (spec.scheme == "memory") return KvMedium::kCpu;
  const std::vector<TierScheme> schemes = tier_schemes();
  const auto scheme = std::ranges::find(schemes, spec.scheme, &TierScheme::scheme);
  return scheme->local_folder ? std::optional(KvMedium::kStorage) : std::nullopt;
}

// Tiers whose storage is in trouble are taken, too: they are opened when they can be.
Result<std::vector<StoreTier>> open_tiers(std::vector<TierSpec> specs, const Clock& clock) {
  for (TierSpec& spec : specs) spec.late = true;
  return open_store_tiers(specs, clock);
}

Result<std::string> ask_tier(Tier& tier, const Hash128& matter, const std::string& found, const Clock& clock) {
  for (const double until_s = clock.now_s() + kReachableWithinS; !tier.reachable() && clock.now_s() < until_s;) {
    clock.sleep_until_s(clock.now_s() + kReachableNapS);
  }
  return agree(tier, matter, found);
}

// Agrees by the first tier that other machines use: who runs other types finds nothing of what this one stores.
WeightAgreement agree_on(const std::vector<StoreTier>& tiers, const Clock& clock) {
  const auto shared = std::ranges::find_if(tiers, &StoreTier::shared);
  if (shared == tiers.end()) return nullptr;
  return [&tier = *shared->tier, &clock](const Hash128& matter, const std::string& found) {
    auto answer = ask_tier(tier, matter, found, clock);
    if (answer) return *std::move(answer);
    constexpr auto kAlone =
        "shale: {} does not say which types its servers run weights in ({}); they are as measured here, and may be "
        "others than theirs, who then share nothing with this one: give --weights";
    print_note(fmt::format(kAlone, tier.name(), answer.error().message));
    return std::string();
  };
}

}  // namespace

Result<std::unique_ptr<Model>> open_model(const ModelChoice& choice, WeightAgreement agree,
                                          std::uint32_t batch_tokens_max) {
  SHALE_ASSIGN(const auto path, resolve_model(choice.model));
  return Model::load(path, {.weights = choice.weights == "file" ? WeightChoice::kFile : WeightChoice::kFast,
                            .choices_folder = user_folder("XDG_CACHE_HOME", ".cache") / "weights",
                            .agree = std::move(agree),
                            .threads = choice.threads,
                            .block_size = choice.block_size,
                            .page_element = choice.kv_cache_dtype == "int8" ? PageElement::kInt8 : PageElement::kHalf,
                            .batch_tokens_max = batch_tokens_max});
}

namespace {

// A token of every request that decodes, beside those of a prompt or a guest.
std::uint32_t batch_tokens_for(const EngineOptions& options) {
  return std::max({ModelOptions().batch_tokens_max, options.chunk_tokens, options.sequences_max + kStepTokens});
}

Result<std::shared_ptr<AnswerMetric>> open_metric(const std::string& name, const Executor& executor) {
  std::unique_ptr<SentenceEncoder> encoder;
  if (needs_encoder(name)) {
    const auto path = resolve_model(kEncoderModel);
    if (!path) return fail_in("--quality-metric " + name, path.error());
    SHALE_ASSIGN(encoder, SentenceEncoder::load(*path, static_cast<std::uint32_t>(executor.threads())));
  }
  return make_answer_metric(name, std::move(encoder));
}

}  // namespace

Status Serving::open_stack(EngineStackOptions options, const std::string& model_name, const std::string& faults,
                           const std::optional<std::vector<TierSpec>>& specs, std::vector<StoreTier> tiers) {
  std::shared_ptr<const FaultFile> file;
  options.cache.wall_clock = wall_clock_s;
  if (!faults.empty()) {
    SHALE_ASSIGN(file, FaultFile::open(faults));
    options.cache.wall_clock = [file] { return wall_clock_s() + file->now().clock_s; };
    for (StoreTier& tier : tiers) tier.tier = make_faulty_tier(std::move(tier.tier), file, clock_);
  }
  std::unique_ptr<MetadataStore> metadata_store;
  if (specs) {
    const ModelRecord model{model_->fingerprint(), model_name};
    SHALE_ASSIGN(metadata_store, open_metadata_store(*specs, tiers, model, options.cache.wall_clock));
  }
  if (tiers.empty()) tiers.push_back({make_memory_tier(0, clock_)});  // the cache wants one; this has no room
  SHALE_ASSIGN(stack_, EngineStack::open(*model_, *tokenizer_, std::move(options), std::move(tiers),
                                         std::move(metadata_store), clock_));
  return {};
}

Result<std::unique_ptr<Serving>> Serving::open(const ServingOptions& options, const OutputOptions& output) {
  SHALE_ASSIGN(const std::vector<TierSpec> specs, tier_specs(options.tiers));
  Progress progress(output, "loading " + options.model.model);
  std::unique_ptr<Serving> serving(new Serving);
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  SHALE_ASSIGN(serving->tokenizer_, Tokenizer::load(path));
  std::optional<std::vector<TierSpec>> stored;
  std::vector<StoreTier> tiers;
  if (options.store && options.engine.prefix_cache) {
    stored = specs;
    SHALE_ASSIGN(tiers, open_tiers(specs, serving->clock_));
  }
  SHALE_ASSIGN(serving->model_,
               open_model(options.model, agree_on(tiers, serving->clock_), batch_tokens_for(options.engine)));
  SHALE_TRY(check_interrupt());

  if (!serving->model_->info().reproducible && options.model.kv_cache_dtype == "fp16") {
    print_note(
        "shale: matrix products of this machine depend on how many there are; exact answers may vary in their "
        "last bits");
  }
  if (!serving->model_->info().as_agreed) {
    print_note(
        "shale: there is no memory for the second copy of the weights that servers of the shared tier have; this one "
        "shares nothing with them: give all of them --weights file");
  }
  EngineStackOptions stack{.pool_bytes = options.pool_bytes.value_or(memory_share(4, std::uint64_t{2} << 30)),
                           .cache = options.cache,
                           .engine = options.engine};
  CacheOptions& cache_options = stack.cache;
  SHALE_ASSIGN(cache_options.metric, open_metric(options.quality_metric, serving->model_->executor()));
  // What a burst of saves cannot stage waits in the pool, where running requests want its room.
  cache_options.staging_bytes = std::max(cache_options.staging_bytes, memory_share(16, std::uint64_t{4} << 30));
  if (!options.calibration.empty()) {
    SHALE_ASSIGN(serving->calibration_, read_calibration(options.calibration, serving->model_->info()));
    cache_options.model.calibration = &*serving->calibration_;
  }
  if (!options.tables.empty()) {
    SHALE_ASSIGN(serving->tables_, read_tables(options.tables, serving->model_->info()));
    cache_options.tables = &*serving->tables_;
  }
  if (options.kv_event_block) {
    KvEventsOptions events{.block_tokens = *options.kv_event_block};
    if (events.block_tokens == 0) events.block_tokens = serving->model_->page_shape().block_size;
    if (stored) std::ranges::transform(*stored, std::back_inserter(events.tiers), medium_of);
    cache_options.events = std::make_shared<KvEvents>(std::move(events));
  }
  SHALE_TRY(serving->open_stack(std::move(stack), path.stem().string(), options.faults, stored, std::move(tiers)));
  Cache& cache = serving->cache();
  note_prior_texts(*serving->tokenizer_, cache);
  for (const std::string& line : TierNews().look(tier_states(cache, cache.store().stats()), serving->clock_.now_s())) {
    print_note("shale: " + line);
  }
  return serving;
}

Serving::~Serving() = default;

// What is merely looked at was stored.
std::optional<Unstored> Serving::unstored() const {
  const StoreStats stats = stack_->cache().store().stats();
  Unstored left{stats.saves_left, stats.bytes_left};
  for (const std::uint32_t tokens : stack_->engine().spans_to_repeat()) {
    ++left.saves;
    left.bytes += tokens * model_->page_shape().token_bytes();
  }
  return left.saves > 0 ? std::optional(left) : std::nullopt;
}

std::optional<Unstored> Serving::finish_storing(const OutputOptions& output, double seconds) {
  Progress progress(output, "storing");
  cache().record_learned();  // which nothing that is left to store should cost
  const double until_s = clock_.now_s() + seconds;
  for (std::size_t pieces = 0; engine().stores_any(); ++pieces) {
    if (interrupted() || clock_.now_s() >= until_s) return unstored();
    if (!engine().run_once()) clock_.sleep_until_s(clock_.now_s() + kStoringNapS);
    progress(pieces, 0);
  }
  return std::nullopt;
}

Status Serving::finish_background(const OutputOptions& output) {
  Progress progress(output, "storing");
  for (std::size_t pieces = 0; engine().run_once(); ++pieces) {
    SHALE_TRY(check_interrupt());
    progress(pieces, 0);
  }
  cache().drain(model_->executor());
  return check_interrupt();
}

}  // namespace shale
