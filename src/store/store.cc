#include "store/store.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "store/store_load.h"
#include "store/store_save.h"

namespace shale {
namespace {

constexpr std::uint32_t kBlocksAChunkMax = kBlocksMax / kChunksMax;

Status check_options(const StoreOptions& options, const std::vector<StoreTier>& tiers) {
  SHALE_TRY(options.geometry.check());
  const std::uint32_t block = options.geometry.block_tokens, chunk = options.chunk_tokens;
  if (chunk == 0 || chunk % block != 0 || chunk / block > kBlocksAChunkMax) {
    return fail(ErrorCode::kInvalidArgument, "a chunk of {} tokens: give 1 to {} times the block of {}", chunk,
                kBlocksAChunkMax, block);
  }
  if (tiers.empty() || tiers.size() > kStoreTiersMax) {
    return fail(ErrorCode::kInvalidArgument, "{} tiers were given; a store has 1 to {}", tiers.size(), kStoreTiersMax);
  }
  if (options.staging_bytes == 0 || !(options.frequency_half_life_s > 0)) {
    return fail(ErrorCode::kInvalidArgument, "staging and the half-life of frequencies must be larger than zero");
  }
  for (const StoreTier& tier : tiers) {
    if (tier.shared && !tier.folder.empty()) {
      return fail(ErrorCode::kInvalidArgument, "{}: a tier with a folder is shared by it; leave out one of the two",
                  tier.tier->name());
    }
  }
  return {};
}

Status check_view(const StoreOptions& options, const KvView& view, std::size_t blocks) {
  SHALE_TRY(view.check());
  if (view.geometry != options.geometry) {
    return fail(ErrorCode::kInvalidArgument,
                "the view's geometry is not the store's: compare layers, heads, block and "
                "element");
  }
  if (view.tokens % options.geometry.block_tokens != 0 || view.blocks() < blocks) {
    return fail(ErrorCode::kInvalidArgument, "the view holds {} tokens; {} blocks of {} are named", view.tokens, blocks,
                options.geometry.block_tokens);
  }
  return {};
}

std::uint32_t end_of(const std::vector<Segment>& segments) {
  return segments.empty() ? 0 : segments.back().first_block + segments.back().blocks;
}

SegmentFilter filter_of(const StoreNeeds& needs, double wall_s) {
  return {needs.exact, static_cast<float>(needs.quality_min), wall_s};
}

SegmentFilter anything(double wall_s) { return {.exact = false, .quality_min = 0, .wall_s = wall_s}; }

}  // namespace

Store::Store(std::unique_ptr<StoreCore> core) : core_(std::move(core)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, std::vector<StoreTier> tiers, const Clock& clock) {
  SHALE_TRY(check_options(options, tiers));
  auto core = std::make_unique<StoreCore>(std::move(options), std::move(tiers), clock);
  SHALE_TRY(core->open());
  return std::unique_ptr<Store>(new Store(std::move(core)));
}

StoreLookup Store::lookup(std::span<const BlockKey> keys, const StoreNeeds& needs, std::string_view tenant_name) {
  StoreCore& core = *core_;
  StoreLookup found;
  const std::lock_guard lock(core.mutex);
  TenantState& tenant = core.tenant(tenant_name);
  const auto segments = core.index.match(keys, tenant.realm, filter_of(needs, core.wall_s()));
  found.blocks = end_of(segments);
  ++tenant.counts.lookups;
  tenant.counts.blocks_asked += keys.size();
  tenant.counts.blocks_found += found.blocks;
  std::array<std::uint64_t, kStoreTiersMax> bytes = {};
  bool exact = true;
  for (const Segment& segment : segments) {
    const Extent& extent = core.index.at(segment.extent);
    exact = exact && extent.exact;
    if (exact) found.exact_blocks = segment.first_block + segment.blocks;
    found.quality = std::min<double>(found.quality, extent.quality);
    const std::uint32_t tier = extent.fastest_tier();
    found.tier = std::max(found.tier, tier);
    bytes[tier] += extent.bytes * segment.blocks / extent.blocks;
  }
  bool shares = false;
  for (std::uint32_t t = 0; t < core.tier_count(); ++t) {
    shares = shares || core.tiers[t].config.shared;
    if (bytes[t] == 0) continue;
    Tier& tier = core.tiers[t].tier();
    // What is asked for and not yet read comes first, and manifests do.
    const double eta_s = tier.speed().latency_s + tier.read_eta_s(bytes[t] + core.tiers[t].asked_bytes);
    found.ready_s = std::max(found.ready_s, eta_s);
  }
  if (!shares || found.blocks >= keys.size() || tenant.number == kNoRealm) return found;
  const std::uint64_t next = chunk_tag(keys[found.blocks], tenant.realm);
  if (!core.recently_asked(next)) {
    core.add_job(make_discover_job(core, {keys.begin(), keys.end()}, found.blocks, tenant.realm, tenant.number));
  }
  found.pending = core.asking.contains(next);
  return found;
}

Result<std::unique_ptr<StoreLoad>> Store::load(std::span<const BlockKey> keys, const MutableKvView& view,
                                               const StoreLoadOptions& options) {
  StoreCore& core = *core_;
  if (options.first_block > keys.size()) {
    return fail(ErrorCode::kInvalidArgument, "first_block {} lies beyond {} keys", options.first_block, keys.size());
  }
  SHALE_TRY(check_view(core.options, readable(view), keys.size() - options.first_block));
  auto state = std::make_shared<StoreLoad::State>(core, std::vector(keys.begin(), keys.end()), view, options);
  {
    const std::lock_guard lock(core.mutex);
    const TenantState& tenant = core.tenant(options.tenant);
    const auto found = core.index.match(keys, tenant.realm, filter_of(options.needs, core.wall_s()));
    state->plan(found, tenant.realm, options.tenant);
  }
  state->pump();
  core.add_load(*state);
  return std::unique_ptr<StoreLoad>(new StoreLoad(std::move(state)));
}

Result<std::unique_ptr<StoreSave>> Store::save(std::span<const BlockKey> keys, const KvView& view, StoreHints hints) {
  StoreCore& core = *core_;
  const auto end = static_cast<std::uint32_t>(keys.size());
  if (hints.first_block >= end || !std::ranges::is_sorted(hints.boundaries)) {
    return fail(ErrorCode::kInvalidArgument,
                "first_block {} of {} keys: there must be a block to save, and boundaries "
                "must ascend",
                hints.first_block, end);
  }
  SHALE_TRY(check_view(core.options, view, end - hints.first_block));
  SHALE_TRY(hints.method.check());
  if (!(hints.keep > 0 && hints.keep <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "keep {}: give more than 0 and at most 1", hints.keep);
  }
  auto state = std::make_shared<StoreSave::State>(core);
  SaveJob::Plan plan;
  plan.keys.assign(keys.begin(), keys.end());
  plan.tokens.assign(hints.tokens.begin(), hints.tokens.end());
  plan.view = view.part(0, (end - hints.first_block) * core.options.geometry.block_tokens);
  plan.view_block = hints.first_block;
  hints.tokens = {};
  plan.hints = std::move(hints);
  {
    const std::lock_guard lock(core.mutex);
    const TenantState& tenant = core.tenant(plan.hints.tenant);
    if (tenant.number == kNoRealm) return fail(ErrorCode::kFull, "there are {} tenants already", kNoRealm);
    plan.realm = tenant.realm;
    plan.realm_number = tenant.number;
    plan_pieces(core, plan);
    std::uint32_t fresh = 0;
    for (const auto& piece : plan.pieces) fresh += piece.blocks;
    state->shared_blocks = end - plan.view_block - fresh;
    ++core.counts.saves;
    core.counts.blocks_shared += state->shared_blocks;
    if (!plan.pieces.empty()) {
      core.add_job(std::make_shared<SaveJob>(core, std::move(plan), state));
    } else {
      state->released = state->done = true;
    }
  }
  return std::unique_ptr<StoreSave>(new StoreSave(std::move(state)));
}

namespace {

// Calls visit(id) for each extent that holds leading blocks; how many blocks that is.
template <class Visit>
std::uint32_t for_prefix(StoreCore& core, std::span<const BlockKey> keys, std::string_view tenant, const Visit& visit) {
  const std::lock_guard lock(core.mutex);
  const auto segments = core.index.match(keys, core.tenant(tenant).realm, anything(core.wall_s()));
  for (const Segment& segment : segments) visit(segment);
  return end_of(segments);
}

}  // namespace

std::uint32_t Store::touch(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const Segment& segment) {
    core_->access(segment.extent, static_cast<double>(segment.blocks) / core_->index.at(segment.extent).blocks);
  });
}

std::uint32_t Store::pin(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const Segment& segment) { core_->pin(segment.extent, true); });
}

std::uint32_t Store::unpin(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const Segment& segment) { core_->pin(segment.extent, false); });
}

// Of several variants one is found at a time, and what follows a removed extent is not found from the chain's start.
std::uint32_t Store::remove(std::span<const BlockKey> keys, std::string_view tenant) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  const double wall = core.wall_s();
  const Hash128 realm = core.tenant(tenant).realm;
  std::uint32_t blocks = 0;
  for (std::uint32_t first = 0; first < keys.size();) {
    const auto segments = core.index.match(keys.subspan(first), realm, anything(wall));
    const auto whole = std::ranges::find_if(segments, [&](const Segment& segment) {
      const Extent& extent = core.index.at(segment.extent);
      return segment.first_chunk == 0 && segment.blocks == extent.blocks && !extent.pinned(wall);
    });
    if (whole == segments.end()) {
      first += std::max(1u, end_of(segments));
      continue;
    }
    blocks += whole->blocks;
    core.use(whole->extent);
    for (std::uint32_t t = 0; t < core.tier_count(); ++t) {
      if (core.index.at(whole->extent).on(t)) core.remove_from(whole->extent, t);
    }
    core.unuse(whole->extent);
  }
  return blocks;
}

StoreStats Store::stats() const {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  StoreStats stats = core.counts;
  std::vector<std::uint64_t> bytes(core.index.realms().size());
  core.index.for_each([&](ExtentId, const Extent& extent) {
    bytes[extent.realm] += extent.bytes * static_cast<std::uint64_t>(std::popcount(extent.tiers));
  });
  for (const auto& [name, tenant] : core.tenants) {
    stats.tenants.push_back(tenant.counts);
    if (tenant.number != kNoRealm) stats.tenants.back().bytes = bytes[tenant.number];
  }
  for (const TierState& tier : core.tiers) {
    stats.tiers.push_back(tier.counts);
    stats.tiers.back().bytes = tier.known_bytes;
  }
  stats.extents = core.index.extents();
  stats.chunks = core.index.chunks();
  stats.index_bytes = core.index.bytes();
  stats.events_lost = core.events.lost();
  stats.staged_bytes = core.staging.used();
  return stats;
}

std::vector<StoreEvent> Store::take_events(std::size_t max) { return core_->events.take(max); }
int Store::event_fd() const { return core_->events.fd(); }
bool Store::work(Executor& executor, double budget_s) { return core_->work(executor, budget_s); }

Status Store::flush() {
  InlineExecutor executor;
  while (!core_->idle()) {
    if (!core_->work(executor, 5e-3)) core_->clock.sleep_until_s(core_->clock.now_s() + 1e-4);
  }
  for (std::uint32_t t = 0; t < core_->tier_count(); ++t) core_->flush_log(t);
  return {};
}

Status Store::check_integrity() {
  SHALE_TRY(flush());
  StoreCore& core = *core_;
  for (std::uint32_t t = 0; t < core.tier_count(); ++t) core.follow_folder(t);
  const std::lock_guard lock(core.mutex);
  SHALE_TRY(core.index.check_integrity());
  for (std::uint32_t t = 0; t < core.tier_count(); ++t) {
    const TierState& tier = core.tiers[t];
    std::uint64_t bytes = 0;
    core.index.for_each([&](ExtentId, const Extent& extent) { bytes += extent.on(t) ? extent.bytes : 0; });
    if (bytes != tier.known_bytes) {
      return fail(ErrorCode::kInternal, "{} counts {} bytes, its extents have {}", tier.tier().name(), tier.known_bytes,
                  bytes);
    }
    if (!tier.config.shared) SHALE_TRY(tier.tier().check_integrity());
  }
  return {};
}

StoreLoad::StoreLoad(std::shared_ptr<State> state) : state_(std::move(state)) {}
StoreLoad::~StoreLoad() { state_->cancel(); }
std::uint32_t StoreLoad::blocks() const { return state_->blocks; }
bool StoreLoad::poll(Executor& executor) { return state_->poll(executor); }
bool StoreLoad::poll() {
  InlineExecutor executor;
  return state_->poll(executor);
}
bool StoreLoad::layer_ready(std::uint32_t layer) const { return state_->layer_ready(layer); }
Status StoreLoad::wait_layer(std::uint32_t layer) {
  while (!poll() && !state_->layer_ready(layer)) state_->wait_for_any();
  if (state_->cancelled) return fail(ErrorCode::kCancelled, "the load was cancelled");
  return {};
}
Status StoreLoad::wait() {
  while (!poll()) state_->wait_for_any();
  if (state_->cancelled) return fail(ErrorCode::kCancelled, "the load was cancelled");
  std::uint32_t failed = 0;
  for (const StoreFailure& failure : state_->failures) failed += failure.blocks;
  if (failed > 0 && failed == state_->blocks) return std::unexpected(state_->failures.front().error);
  return {};
}
void StoreLoad::cancel() { state_->cancel(); }
bool StoreLoad::done() const { return state_->done; }
const std::vector<StoreFailure>& StoreLoad::failures() const { return state_->failures; }
const std::vector<StoreRun>& StoreLoad::runs() const { return state_->runs; }
Hash128 StoreLoad::lineage() const { return state_->lineage; }

}  // namespace shale
