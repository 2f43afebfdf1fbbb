#include "cli/serving.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/configuration.h"
#include "cli/interrupt.h"
#include "cli/model_registry.h"
#include "cli/text_file.h"
#include "core/units.h"

namespace shale {
namespace {

std::uint64_t memory_share(std::uint64_t parts, std::uint64_t bytes_max) {
  const auto bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(bytes / parts, bytes_max);
}

std::unique_ptr<Tier> throttled(std::unique_ptr<Tier> tier, const std::optional<Throttle>& throttle,
                                const Clock& clock) {
  return throttle ? make_throttled_tier(std::move(tier), *throttle, clock) : std::move(tier);
}

Result<Calibration> read_calibration(const std::string& path, const ModelInfo& model) {
  SHALE_ASSIGN(const std::string bytes, read_file(path));
  auto calibration = Calibration::parse(std::as_bytes(std::span(bytes)), model.checkpoint);
  if (!calibration) return fail_in("calibration " + path, std::move(calibration).error());
  const Status shape = calibration->check_shape(model.layers, model.query_heads, model.ropes[0].pairs());
  if (!shape) return fail_in("calibration " + path, shape.error());
  return calibration;
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

std::filesystem::path catalogue_file(const TierChoice& choice) { return cache_folder(choice) / "catalogue.sqlite"; }

Result<std::vector<std::unique_ptr<Tier>>> open_tiers(const TierChoice& choice, bool memory, const Clock& clock) {
  std::vector<std::unique_ptr<Tier>> tiers;
  const std::uint64_t memory_bytes = choice.memory_bytes.value_or(memory_share(8, std::uint64_t{1} << 30));
  if (memory && memory_bytes) tiers.push_back(make_memory_tier(memory_bytes, clock));
  if (choice.disk_bytes) {
    const auto folder = cache_folder(choice);
    SHALE_ASSIGN(auto disk, make_disk_tier({.folder = folder, .capacity_bytes = choice.disk_bytes}, clock));
    if (disk->read_only()) {
      print_note(fmt::format("shale: another process writes to {}; reading only, nothing new is stored there",
                             folder.string()));
    }
    tiers.push_back(throttled(std::move(disk), choice.throttle_disk, clock));
  }
  if (!choice.remote.empty()) {
    SHALE_ASSIGN(auto remote, make_directory_tier(choice.remote, choice.remote_bytes, clock));
    tiers.push_back(throttled(std::move(remote), choice.throttle_remote, clock));
  }
  return tiers;
}

Result<std::unique_ptr<Model>> open_model(const ModelChoice& choice) {
  SHALE_ASSIGN(const auto path, resolve_model(choice.model));
  return Model::load(path, {.weights = choice.weights == "file" ? WeightChoice::kFile : WeightChoice::kFast,
                            .choices_folder = user_folder("XDG_CACHE_HOME", ".cache") / "weights",
                            .threads = choice.threads,
                            .page_tokens = choice.page_tokens,
                            .page_element = choice.resident == "int8" ? PageElement::kInt8 : PageElement::kHalf});
}

Result<std::unique_ptr<Serving>> Serving::open(const ServingOptions& options, const OutputOptions& output) {
  Progress progress(output, "loading " + options.model.model);
  std::unique_ptr<Serving> serving(new Serving);
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  SHALE_ASSIGN(serving->tokenizer_, Tokenizer::load(path));
  SHALE_ASSIGN(serving->model_, open_model(options.model));
  SHALE_TRY(check_interrupt());

  const std::uint64_t pool_bytes = options.pool_bytes.value_or(memory_share(4, std::uint64_t{2} << 30));
  SHALE_ASSIGN(serving->pool_, PagePool::create(serving->model_->page_shape(), pool_bytes));
  const Fingerprint fingerprint{serving->model_->fingerprint(), path.stem().string()};
  std::vector<std::unique_ptr<Tier>> tiers;
  std::unique_ptr<Catalogue> catalogue;
  if (options.store && options.engine.prefix_cache) {
    SHALE_ASSIGN(tiers, open_tiers(options.tiers, true, serving->clock_));
    if (options.tiers.disk_bytes) {
      SHALE_ASSIGN(catalogue, Catalogue::open(catalogue_file(options.tiers), fingerprint.hash));
      if (catalogue->warning()) print_note("shale: " + catalogue->warning()->message);
    }
  }
  if (tiers.empty()) tiers.push_back(make_memory_tier(0, serving->clock_));  // the cache wants one; this has no room
  CacheOptions cache_options = options.cache;
  cache_options.model = serving->model_->info().traits();
  if (!options.calibration.empty()) {
    SHALE_ASSIGN(serving->calibration_, read_calibration(options.calibration, serving->model_->info()));
    cache_options.model.calibration = &*serving->calibration_;
  }
  if (!options.tables.empty()) {
    SHALE_ASSIGN(serving->tables_, read_tables(options.tables, serving->model_->info()));
    cache_options.tables = &*serving->tables_;
  }
  SHALE_ASSIGN(serving->cache_, Cache::open(std::move(cache_options), fingerprint, *serving->pool_, std::move(tiers),
                                            std::move(catalogue), serving->clock_));
  if (const auto& warning = serving->cache_->warning()) {
    print_note("shale: an unusable object stays where it is and is not used: " + warning->message);
  }
  serving->engine_ = std::make_unique<Engine>(options.engine, *serving->model_, *serving->tokenizer_, *serving->cache_,
                                              serving->clock_);
  return serving;
}

Serving::~Serving() = default;

Status Serving::finish_background(const OutputOptions& output) {
  Progress progress(output, "storing");
  for (std::size_t pieces = 0; engine_->run_once(); ++pieces) {
    SHALE_TRY(check_interrupt());
    progress(pieces, 0);
  }
  cache_->drain(model_->executor());
  return check_interrupt();
}

}  // namespace shale
