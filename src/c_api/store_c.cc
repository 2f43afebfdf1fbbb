// The store in plain C: every call turns structures, errors and exceptions into what C has.
#include <algorithm>
#include <utility>

#include "c_api/store_c_values.h"
#include "extents/store_tiers.h"
#include "shale/store.h"
#include "tier/tier_url.h"

namespace shale {
namespace {

// One of touch, pin, unpin and remove.
template <class Call>
shale_code for_prefix(shale_store* store, const shale_key* keys, std::size_t count, const char* tenant,
                      std::uint32_t* blocks, Call call) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_ASSIGN(const auto names, keys_of(keys, count));
    const std::uint32_t found = (store->store.get()->*call)(names, text_of(tenant));
    if (blocks) *blocks = found;
    return {};
  });
}

// Points into what it owns.
struct StatsPicture final : shale_stats {
  StoreStats of;
  std::vector<shale_tenant_stats> tenant_rows;
  std::vector<shale_tier_stats> tier_rows;

  explicit StatsPicture(StoreStats stats) : shale_stats(), of(std::move(stats)) {
    for (const StoreTenantStats& t : of.tenants) {
      tenant_rows.push_back({t.tenant.c_str(), t.bytes, t.bytes_max, t.dropped_for_room, t.refused, t.lookups,
                             t.blocks_asked, t.blocks_found, t.blocks_loaded, t.blocks_saved});
    }
    for (const StoreTierStats& t : of.tiers) {
      tier_rows.push_back({t.name.c_str(), t.extents, t.chunks, t.bytes, t.capacity_bytes, t.blocks_loaded,
                           t.bytes_read, t.bytes_written, t.demoted, t.removed,
                           t.trouble.empty() ? nullptr : t.trouble.c_str()});
    }
    tenants = tenant_rows.data();
    tenant_count = tenant_rows.size();
    tiers = tier_rows.data();
    tier_count = tier_rows.size();
    extents = of.extents;
    chunks = of.chunks;
    index_bytes = of.index_bytes;
    saves = of.saves;
    blocks_shared = of.blocks_shared;
    extents_failed = of.extents_failed;
    damaged_chunks = of.damaged_chunks;
    stale_extents = of.stale_extents;
    expired_extents = of.expired_extents;
    discovered_extents = of.discovered_extents;
    events_lost = of.events_lost;
    staged_bytes = of.staged_bytes;
  }
};

struct EventsTaken final : shale_events {
  std::vector<StoreEvent> of;
  std::vector<shale_event> rows;

  explicit EventsTaken(std::vector<StoreEvent> taken) : shale_events(), of(std::move(taken)) {
    for (const StoreEvent& event : of) {
      rows.push_back({static_cast<shale_event_kind>(event.kind), event.tier, event.tenant.c_str(),
                      *reinterpret_cast<const shale_key*>(&event.parent), keys_to(event.keys), event.keys.size(),
                      event.block_tokens});
    }
    events = rows.data();
    count = rows.size();
  }
};

}  // namespace
}  // namespace shale

using namespace shale;

const char* shale_version(void) { return SHALE_VERSION; }

const char* shale_error_message(void) { return last_message(); }

shale_code shale_block_keys(const char* seed, const int32_t* tokens, size_t token_count, uint32_t block_tokens,
                            const char* const* extras, size_t extra_count, shale_key* keys) {
  return guarded([&]() -> Status {
    if (block_tokens == 0) return fail(ErrorCode::kInvalidArgument, "a block of 0 tokens: give at least 1");
    SHALE_ASSIGN(const auto chain, span_of(tokens, token_count, "tokens"));
    SHALE_ASSIGN(const auto names, span_of(extras, extra_count, "extras"));
    KeyExtras more;
    for (const char* extra : names) more.emplace_back(text_of(extra));
    const std::vector<BlockKey> made = block_keys(text_of(seed), chain, block_tokens, more);
    if (!made.empty()) SHALE_TRY(check_given(keys, "keys"));
    std::copy_n(keys_to(made), made.size(), keys);
    return {};
  });
}

shale_view shale_plain_view(const shale_geometry* geometry, void* keys, void* values, uint32_t tokens) {
  const KvGeometry of = geometry_of(*geometry);
  const auto channel = static_cast<std::int64_t>(of.element_bytes());
  const std::int64_t token = channel * of.head_dim, head = token * tokens;
  const auto array = [&](void* base) {
    return shale_array{.base = base,
                       .layers = nullptr,
                       .layer_stride = head * of.kv_heads,
                       .block_stride = token * of.block_tokens,
                       .token_stride = token,
                       .head_stride = head,
                       .channel_stride = channel};
  };
  return {.keys = array(keys),
          .values = array(values),
          .block_table = nullptr,
          .physical_blocks = tokens / of.block_tokens,
          .tokens = tokens};
}

shale_code shale_store_open(const shale_store_options* options, shale_store** store) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(options, "options"));
    SHALE_TRY(check_given(store, "store"));
    SHALE_ASSIGN(StoreOptions given, options_of(*options));
    SHALE_TRY(given.geometry.check());
    auto opened = std::make_unique<shale_store>();
    opened->geometry = given.geometry;
    SHALE_ASSIGN(auto specs, parse_tiers(split_tier_urls(text_of(options->tiers))));
    for (TierSpec& spec : specs) spec.late = options->late;
    SHALE_ASSIGN(auto tiers, open_store_tiers(specs, opened->clock));
    SHALE_ASSIGN(opened->store, Store::open(std::move(given), std::move(tiers), opened->clock));
    *store = opened.release();
    return {};
  });
}

void shale_store_close(shale_store* store) { delete store; }

shale_code shale_store_lookup(shale_store* store, const shale_key* keys, size_t key_count, const shale_needs* needs,
                              const char* tenant, shale_lookup* found) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_TRY(check_given(found, "found"));
    SHALE_ASSIGN(const auto names, keys_of(keys, key_count));
    const StoreLookup there = store->store->lookup(names, needs_of(needs), text_of(tenant));
    *found = {.blocks = there.blocks,
              .exact_blocks = there.exact_blocks,
              .tier = there.tier,
              .pending = there.pending,
              .quality = there.quality,
              .ready_s = there.ready_s};
    return {};
  });
}

shale_code shale_store_touch(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                             uint32_t* blocks) {
  return for_prefix(store, keys, key_count, tenant, blocks, &Store::touch);
}
shale_code shale_store_pin(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                           uint32_t* blocks) {
  return for_prefix(store, keys, key_count, tenant, blocks, &Store::pin);
}
shale_code shale_store_unpin(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                             uint32_t* blocks) {
  return for_prefix(store, keys, key_count, tenant, blocks, &Store::unpin);
}
shale_code shale_store_remove(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                              uint32_t* blocks) {
  return for_prefix(store, keys, key_count, tenant, blocks, &Store::remove);
}

shale_code shale_store_set_quota(shale_store* store, const char* tenant, uint64_t bytes_max) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    store->store->set_quota(text_of(tenant), bytes_max);
    return {};
  });
}

int shale_store_event_fd(const shale_store* store) { return store->store->event_fd(); }

shale_code shale_store_work(shale_store* store, double budget_s, bool* worked) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    InlineExecutor here;
    const bool did = store->store->work(here, budget_s);
    if (worked) *worked = did;
    return {};
  });
}

shale_code shale_store_flush(shale_store* store) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    return store->store->flush();
  });
}

shale_code shale_store_check_integrity(shale_store* store) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    return store->store->check_integrity();
  });
}

shale_code shale_store_stats(const shale_store* store, shale_stats** stats) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_TRY(check_given(stats, "stats"));
    *stats = new StatsPicture(store->store->stats());
    return {};
  });
}

void shale_stats_free(shale_stats* stats) { delete static_cast<StatsPicture*>(stats); }

shale_code shale_store_take_events(shale_store* store, size_t max, shale_events** events) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_TRY(check_given(events, "events"));
    *events = new EventsTaken(store->store->take_events(max));
    return {};
  });
}

void shale_events_free(shale_events* events) { delete static_cast<EventsTaken*>(events); }
