#include "store/store.h"

#include <algorithm>
#include <limits>
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

// Asks shared tiers, unless they were asked lately, for the chunk after those `found` blocks and for what follows it;
// whether they are being asked.
bool discover_after(StoreCore& core, std::span<const BlockKey> keys, std::uint32_t found, const TenantState& tenant) {
  const bool shares = std::ranges::any_of(core.tiers, [](const TierState& tier) { return tier.config.shared; });
  if (!shares || !core.placer.stores() || found >= keys.size() || tenant.number == kNoRealm) return false;
  const std::uint64_t next = chunk_tag(keys[found], tenant.realm);
  const bool lately = core.asked.lately(next, core.clock.now_s());
  if (!lately && core.asked.add({{keys.begin(), keys.end()}, found, tenant.realm, tenant.number})) {
    core.add_job(make_discover_job(core));
  }
  return core.asked.being_asked(next);
}

}  // namespace

Store::Store(std::unique_ptr<StoreCore> core) : core_(std::move(core)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, std::vector<StoreTier> tiers, const Clock& clock) {
  SHALE_TRY(check_options(options, tiers));
  auto core = std::make_unique<StoreCore>(std::move(options), std::move(tiers), clock);
  SHALE_TRY(core->open());
  return std::unique_ptr<Store>(new Store(std::move(core)));
}

StoreLookup Store::lookup(std::span<const BlockKey> keys, const StoreNeeds& needs, std::string_view tenant_name,
                          bool counts) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  TenantState& tenant = core.tenant(tenant_name);
  StoreLookup found = core.describe(core.index.match(keys, tenant.realm, core.filter(needs)), needs);
  if (counts) {
    ++tenant.counts.lookups;
    tenant.counts.blocks_asked += keys.size();
    tenant.counts.blocks_found += found.blocks;
  }
  found.pending = discover_after(core, keys, found.blocks, tenant);
  return found;
}

bool Store::discover(std::span<const BlockKey> keys, std::string_view tenant_name) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  const TenantState& tenant = core.tenant(tenant_name);
  return discover_after(core, keys, core.describe(core.index.match(keys, tenant.realm, core.filter({})), {}).blocks,
                        tenant);
}

Result<std::unique_ptr<StoreLoad>> Store::load(std::span<const BlockKey> keys, const MutableKvView& view,
                                               const StoreLoadOptions& options) {
  StoreCore& core = *core_;
  if (options.end_block > 0) keys = keys.first(std::min<std::size_t>(keys.size(), options.end_block));
  if (options.first_block > keys.size()) {
    return fail(ErrorCode::kInvalidArgument, "first_block {} lies beyond {} keys", options.first_block, keys.size());
  }
  SHALE_TRY(check_view(core.options, readable(view), keys.size() - options.first_block));
  auto state = std::make_shared<StoreLoad::State>(core, std::vector(keys.begin(), keys.end()), view, options);
  {
    const std::lock_guard lock(core.mutex);
    const TenantState& tenant = core.tenant(options.tenant);
    const auto found = core.index.match(keys, tenant.realm, core.filter(options.needs));
    state->plan(found, tenant.realm, options.tenant);
  }
  if (state->pump()) core.signal();
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
  SHALE_TRY(hints.check(core.options.geometry));
  if (!core.placer.stores()) return fail(ErrorCode::kFull, "planner {} stores nothing", core.options.placement.planner);
  auto state = std::make_shared<StoreSave::State>(core);
  SaveJob::Plan plan;
  plan.keys.assign(keys.begin(), keys.end());
  plan.tokens.assign(hints.tokens.begin(), hints.tokens.end());
  plan.view = view.part(0, (end - hints.first_block) * core.options.geometry.block_tokens);
  plan.view_block = hints.first_block;
  hints.tokens = {};
  if (hints.run == Hash128()) {
    const BlockKey parent = hints.first_block > 0 ? keys[hints.first_block - 1] : BlockKey{};
    hints.run = Hasher().add(parent).add(keys.back()).finish();
  }
  plan.hints = std::move(hints);
  {
    const std::lock_guard lock(core.mutex);
    const TenantState& tenant = core.tenant(plan.hints.tenant);
    if (tenant.number == kNoRealm) return fail(ErrorCode::kFull, "there are {} tenants already", kNoRealm);
    plan.realm = tenant.realm;
    plan.realm_number = tenant.number;
    plan_pieces(core, plan);
    if (plan.hints.pin) {  // what of it is there; the rest, which another form may be there of, once it is stored
      for (const ChainSpan& span : core.index.match(keys, plan.realm, core.filter({.exact = false}))) {
        const bool fresh = std::ranges::any_of(plan.pieces, [&](const SaveJob::Plan::Piece& piece) {
          return piece.first_block < span.first_block + span.blocks &&
                 span.first_block < piece.first_block + piece.blocks;
        });
        if (!fresh) core.pin(span.extent, true);
      }
    }
    std::uint32_t fresh = 0;
    for (const auto& piece : plan.pieces) fresh += piece.blocks;
    state->shared_blocks = end - plan.view_block - fresh;
    ++core.counts.saves;
    core.counts.blocks_shared += state->shared_blocks;
    if (!plan.pieces.empty()) {
      core.add_save(std::make_shared<SaveJob>(core, std::move(plan), state));
    } else {
      state->set_done({});
    }
  }
  return std::unique_ptr<StoreSave>(new StoreSave(std::move(state)));
}

std::vector<StoreEvent> Store::take_events(std::size_t max) { return core_->events.take(max); }
int Store::event_fd() const { return core_->events.fd(); }
bool Store::saves_any() const { return core_->saves_any(); }
bool Store::idle() const { return core_->idle(); }
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
  for (std::uint32_t t = 0; t < core.tier_count(); ++t) core.follow(t);
  const std::lock_guard lock(core.mutex);
  SHALE_TRY(core.index.check_integrity());
  SHALE_TRY(core.placer.check_integrity());
  if (core.expiries.size() > core.index.extents()) return fail(ErrorCode::kInternal, "more expires than there is");
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
std::uint32_t StoreLoad::skipped() const { return state_->skipped; }
bool StoreLoad::poll(Executor& executor) { return state_->poll(executor, std::numeric_limits<double>::infinity()); }
bool StoreLoad::poll(Executor& executor, double budget_s) {
  return state_->poll(executor, state_->core.clock.now_s() + budget_s);
}
bool StoreLoad::poll() {
  InlineExecutor executor;
  return poll(executor);
}
bool StoreLoad::planned() { return state_->planned(); }
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
std::uint32_t StoreLoad::owing() const { return state_->owing(); }
std::uint64_t StoreLoad::decoded_bytes() const { return state_->decoded_bytes; }
bool StoreLoad::done() const { return state_->done; }
const std::vector<StoreFailure>& StoreLoad::failures() const { return state_->failures; }
const std::vector<StoreRun>& StoreLoad::runs() const { return state_->runs; }
Hash128 StoreLoad::lineage() const { return state_->lineage; }

}  // namespace shale
