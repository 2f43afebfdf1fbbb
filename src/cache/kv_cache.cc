#include <algorithm>
#include <cstring>
#include <mutex>

#include "cache/cache.h"
#include "shale/cache.h"
#include "tier/tiers.h"

namespace shale {
namespace {

// No token of any vocabulary: stands for "the rest of the prompt", since a lookup always leaves the last token out.
constexpr std::int32_t kNoToken = -1;

std::unexpected<KvError> outward(const Error& error) {
  const auto code = [&] {
    switch (error.code) {
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kUnsupported:
      case ErrorCode::kMismatch:
        return KvErrorCode::kInvalidArgument;
      case ErrorCode::kFull:
        return KvErrorCode::kFull;
      case ErrorCode::kBusy:
        return KvErrorCode::kBusy;
      case ErrorCode::kIo:
      case ErrorCode::kCorrupt:
        return KvErrorCode::kIo;
      default:
        return KvErrorCode::kInternal;
    }
  }();
  return std::unexpected(KvError{code, error.message});
}

Status check(const KvCacheOptions& options) {
  const KvGeometry& g = options.geometry;
  if (options.model.empty()) return fail(ErrorCode::kInvalidArgument, "the model's name is empty");
  if (g.layers == 0 || g.kv_heads == 0 || g.head_dim == 0 || g.layers > 4096 || g.kv_heads > 4096 ||
      g.head_dim > 4096) {
    return fail(ErrorCode::kInvalidArgument, "geometry {} layers x {} KV heads x {}: each must be 1 to 4096", g.layers,
                g.kv_heads, g.head_dim);
  }
  if (g.page_tokens != 8 && g.page_tokens != 16 && g.page_tokens != 32 && g.page_tokens != 64) {
    return fail(ErrorCode::kInvalidArgument, "pages of {} tokens: 8, 16, 32 or 64", g.page_tokens);
  }
  if (options.memory_bytes == 0 && options.folder.empty() && options.shared_folder.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no tier: give memory, a folder or a shared folder");
  }
  return {};
}

// A caller's method, when it can be followed here.
Result<Method> checked_method(const KvConfiguration& as) {
  SHALE_ASSIGN(Method method, Method::parse(as.method));
  SHALE_TRY(method.check());
  if (std::ranges::find(kKeepGrid, as.keep) == kKeepGrid.end()) {
    return fail(ErrorCode::kInvalidArgument, "keep {}: one of 0.1, 0.25, 0.5, 0.75, 1", as.keep);
  }
  if (method.scorer.empty()) {
    if (as.keep < 1) return fail(ErrorCode::kInvalidArgument, "{} ranks no tokens: keep 1", as.method);
    return method;
  }
  SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer));
  const std::string missing = missing_needs(scorer->needs(), {.keys = true, .values = true});
  if (!missing.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} needs {}, which only an engine has", method.scorer, missing);
  }
  return method;
}

Fingerprint fingerprint_of(const KvCacheOptions& options) {
  const KvGeometry& g = options.geometry;
  Hasher hasher;
  hasher.add("embedded fp16").add(options.model);
  for (const std::uint64_t number : {g.layers, g.kv_heads, g.head_dim, g.page_tokens, kObjectFormatVersion}) {
    hasher.add(number);
  }
  return {hasher.finish(), options.model};
}

Result<std::vector<std::unique_ptr<Tier>>> open_tiers(const KvCacheOptions& options, const Clock& clock) {
  std::vector<std::unique_ptr<Tier>> tiers;
  if (options.memory_bytes) tiers.push_back(make_memory_tier(options.memory_bytes, clock));
  if (!options.folder.empty()) {
    SHALE_ASSIGN(auto disk, make_disk_tier({.folder = options.folder, .capacity_bytes = options.disk_bytes}, clock));
    tiers.push_back(std::move(disk));
  }
  if (!options.shared_folder.empty()) {
    SHALE_ASSIGN(auto remote, make_directory_tier(options.shared_folder, options.shared_bytes, clock));
    tiers.push_back(std::move(remote));
  }
  return tiers;
}

// Calls visit(page, slot, row, count) for the rows at and after `first`, page by page.
template <class Visit>
void for_each_page_piece(const HeadTable& table, std::uint32_t first, const Visit& visit) {
  std::uint32_t row = 0;
  for (const PageSlot& slot : table.pages) {
    const std::uint32_t skip = row < first ? std::min(first - row, slot.count) : 0;
    if (skip < slot.count) visit(slot.page, skip, row + skip, slot.count - skip);
    row += slot.count;
  }
}

}  // namespace

struct KvCache::State {
  RealClock clock;
  PageShape shape;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Cache> cache;
  InlineExecutor executor;
  std::mutex mutex;
  std::vector<std::uint16_t> keys, values;  // one block, rows of tokens

  void fill(const Sequence& sequence, std::uint32_t first, const KvSource& source);
  void drain(const Sequence& sequence, KvFetched& fetched, const KvSink& sink);
};

// Asks `source` for the tokens at and after `first`, block by block, and lays them out as pages.
void KvCache::State::fill(const Sequence& sequence, std::uint32_t first, const KvSource& source) {
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      for_each_page_piece(sequence.table(layer, head), first,
                          [&](PageId id, std::uint32_t slot, std::uint32_t row, std::uint32_t count) {
                            source({layer, head, row, count, keys.data(), values.data()});
                            const MutablePageView page = pool->writable_page(id);
                            for (std::uint32_t t = 0; t < count; ++t) {
                              for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
                                page.keys[c * shape.page_tokens + slot + t].bits = keys[t * shape.head_dim + c];
                              }
                            }
                            std::memcpy(static_cast<void*>(page.values + slot * shape.head_dim), values.data(),
                                        count * shape.head_dim * sizeof(Half));
                          });
    }
  }
}

void KvCache::State::drain(const Sequence& sequence, KvFetched& fetched, const KvSink& sink) {
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      const HeadTable table = sequence.table(layer, head);
      fetched.rows.push_back(table.tokens);
      for_each_page_piece(table, 0, [&](PageId id, std::uint32_t slot, std::uint32_t row, std::uint32_t count) {
        const PageView page = pool->page(id);
        for (std::uint32_t t = 0; t < count; ++t) {
          for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
            keys[t * shape.head_dim + c] = page.keys[c * shape.page_tokens + slot + t].bits;
          }
        }
        std::memcpy(values.data(), page.values + slot * shape.head_dim, count * shape.head_dim * sizeof(Half));
        sink({layer, head, row, count, keys.data(), values.data()});
      });
    }
  }
}

KvCache::KvCache(std::unique_ptr<State> state) : state_(std::move(state)) {}
KvCache::~KvCache() = default;

KvResult<std::unique_ptr<KvCache>> KvCache::open(const KvCacheOptions& options) {
  auto open_inward = [&]() -> Result<std::unique_ptr<State>> {
    SHALE_TRY(check(options));
    const KvGeometry& g = options.geometry;
    CacheOptions cache_options;
    cache_options.entry_tokens_min = 1;
    cache_options.load_always = true;  // only the caller could compute
    auto state = std::make_unique<State>();
    state->shape = {g.layers, g.kv_heads, g.head_dim, g.page_tokens};
    state->keys.resize(state->shape.key_elements());
    state->values.resize(state->shape.key_elements());
    SHALE_ASSIGN(state->pool, PagePool::create(state->shape, options.staging_bytes));
    SHALE_ASSIGN(auto tiers, open_tiers(options, state->clock));
    SHALE_ASSIGN(state->cache, Cache::open(cache_options, fingerprint_of(options), *state->pool, std::move(tiers),
                                           nullptr, state->clock));
    return state;
  };
  auto state = open_inward();
  if (!state) return outward(state.error());
  return std::unique_ptr<KvCache>(new KvCache(std::move(*state)));
}

std::uint32_t KvCache::lookup(std::span<const std::int32_t> tokens) const {
  const std::lock_guard lock(state_->mutex);
  std::uint32_t found = 0;
  for (const auto& link : state_->cache->index().match(tokens)) {
    if (link.entry->objects.empty()) break;
    found += link.matched;
  }
  return found;
}

KvResult<void> KvCache::store(std::span<const std::int32_t> tokens, const KvSource& source,
                              const KvStoreOptions& options) {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  auto store_inward = [&]() -> Status {
    SHALE_ASSIGN(Method method, checked_method(options.as));
    Cache::NewEntry entry;
    for (const auto& link : state.cache->index().match(tokens)) {
      if (link.matched < link.entry->tokens.size() || link.entry->objects.empty()) break;
      entry.parent = link.entry->key;
      entry.first_position = link.entry->end_position();
    }
    if (entry.first_position == tokens.size()) return {};
    entry.tokens.assign(tokens.begin() + entry.first_position, tokens.end());
    entry.recompute_s = options.recompute_s;
    entry.label = options.label;
    if (!method.is_full()) entry.placed_as = Configuration{.method = std::move(method), .keep = options.as.keep};
    if (entry.recompute_s > 0) {
      state.cache->note_prefill(static_cast<std::uint32_t>(entry.tokens.size()), entry.first_position,
                                entry.recompute_s);
    }

    Sequence sequence(*state.pool);
    SHALE_TRY(sequence.append(static_cast<std::uint32_t>(tokens.size())));
    state.fill(sequence, entry.first_position, source);
    const EntryKey key = state.cache->store(std::move(entry), sequence);
    state.cache->drain(state.executor);
    const Entry* stored = state.cache->index().find(key);
    if (!stored || stored->objects.empty()) {
      return fail(ErrorCode::kFull, "no tier took the {} tokens: give one more room, or see whether its disk is full",
                  tokens.size());
    }
    return {};
  };
  if (auto status = store_inward(); !status) return outward(status.error());
  return {};
}

KvResult<KvFetched> KvCache::fetch(std::span<const std::int32_t> tokens, const KvSink& sink,
                                   const KvConfiguration& as) {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  auto method = checked_method(as);
  if (!method) return outward(method.error());
  const Demand demand =
      method->is_full() ? Demand{.exact = true, .method = {}} : Demand{.method = std::move(*method), .keep = as.keep};
  std::vector<std::int32_t> prompt(tokens.begin(), tokens.end());
  prompt.push_back(kNoToken);
  for (;;) {
    Sequence sequence(*state.pool);
    Retrieval retrieval = state.cache->retrieve(prompt, demand, sequence);
    if (const Status status = retrieval.ensure_all(state.executor); !status) {
      if (!retrieval.failure()) return outward(status.error());
      state.cache->report_failure(std::move(retrieval));  // the next turn finds something else, or nothing
      continue;
    }
    KvFetched fetched{.tokens = retrieval.tokens(), .lossy = retrieval.lossy(), .rows = {}, .sources = {}};
    for (const SourceUsed& used : retrieval.sources()) {
      fetched.sources.push_back({used.where, {used.method.text(), used.keep}, used.tokens, used.bytes});
    }
    if (fetched.tokens) state.drain(sequence, fetched, sink);
    state.cache->drain(state.executor);
    return fetched;
  }
}

KvResult<void> KvCache::store(std::span<const std::int32_t> tokens, std::span<const std::uint16_t> keys,
                              std::span<const std::uint16_t> values, const KvStoreOptions& options) {
  const PageShape& shape = state_->shape;
  const std::size_t elements = std::size_t{shape.pages_per_slab()} * tokens.size() * shape.head_dim;
  if (keys.size() != elements || values.size() != elements) {
    return outward(
        {ErrorCode::kInvalidArgument, fmt::format("keys and values have {} and {} elements; {} tokens need {}",
                                                  keys.size(), values.size(), tokens.size(), elements)});
  }
  const KvSource source = [&](const KvBlock<std::uint16_t>& block) {
    const std::size_t head = shape.page_index(block.layer, block.kv_head);
    const std::size_t from = (head * tokens.size() + block.first) * shape.head_dim;
    const std::size_t bytes = block.count * shape.head_dim * sizeof(std::uint16_t);
    std::memcpy(block.keys, keys.data() + from, bytes);
    std::memcpy(block.values, values.data() + from, bytes);
  };
  return store(tokens, source, options);
}

KvResult<KvFetched> KvCache::fetch(std::span<const std::int32_t> tokens, std::span<std::uint16_t> keys,
                                   std::span<std::uint16_t> values, const KvConfiguration& as) {
  const PageShape& shape = state_->shape;
  const std::size_t elements = std::size_t{shape.pages_per_slab()} * tokens.size() * shape.head_dim;
  if (keys.size() != elements || values.size() != elements) {
    return outward(
        {ErrorCode::kInvalidArgument, fmt::format("keys and values have room for {} and {} elements; {} tokens need {}",
                                                  keys.size(), values.size(), tokens.size(), elements)});
  }
  const KvSink sink = [&](const KvBlock<const std::uint16_t>& block) {
    const std::size_t head = shape.page_index(block.layer, block.kv_head);
    const std::size_t to = (head * tokens.size() + block.first) * shape.head_dim;
    const std::size_t bytes = block.count * shape.head_dim * sizeof(std::uint16_t);
    std::memcpy(keys.data() + to, block.keys, bytes);
    std::memcpy(values.data() + to, block.values, bytes);
  };
  return fetch(tokens, sink, as);
}

KvCacheStats KvCache::stats() const {
  const std::lock_guard lock(state_->mutex);
  const CacheStats& stats = state_->cache->stats();
  return {.lookups = stats.lookups,
          .hits = stats.hits,
          .tokens_memory = stats.cached.from("memory"),
          .tokens_disk = stats.cached.from("disk"),
          .tokens_shared = stats.cached.from("remote"),
          .corrupt_objects = stats.corrupt_objects,
          .stored_bytes = stats.encoded_bytes};
}

}  // namespace shale
