#include "c_api/store_c_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

namespace shale {
namespace {

static_assert(sizeof(shale_key) == sizeof(BlockKey) && alignof(shale_key) == alignof(BlockKey));
static_assert(static_cast<int>(KvElement::kOpaque) == SHALE_OPAQUE && static_cast<int>(KvElement::kF32) == SHALE_F32);
static_assert(static_cast<int>(StoreEvent::Kind::kLost) == SHALE_LOST);
static_assert(static_cast<int>(ErrorCode::kInternal) + 1 == SHALE_INTERNAL);
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) + 1 == SHALE_INVALID_ARGUMENT);

std::string& message() {
  thread_local std::string text;
  return text;
}

Result<KvPacking> packing_of(shale_packing packing) {
  switch (packing) {
    case SHALE_PACKING_NHD:
      return KvPacking::kTokensHeads;
    case SHALE_PACKING_HND:
      return KvPacking::kHeadsTokens;
    case SHALE_PACKING_HEAD_PAGES:
      return KvPacking::kHeadPages;
  }
  return fail(ErrorCode::kInvalidArgument, "there is no packing {}: {} is NHD, {} HND, {} head pages",
              static_cast<int>(packing), static_cast<int>(SHALE_PACKING_NHD), static_cast<int>(SHALE_PACKING_HND),
              static_cast<int>(SHALE_PACKING_HEAD_PAGES));
}

template <class Byte>
KvArray<Byte> array_of(const shale_array& array, std::uint32_t layers) {
  KvArray<Byte> result{.layers = {},
                       .block_stride = array.block_stride,
                       .token_stride = array.token_stride,
                       .head_stride = array.head_stride,
                       .channel_stride = array.channel_stride};
  if (!array.layers && !array.base) return result;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    void* const first =
        array.layers ? array.layers[layer] : static_cast<std::byte*>(array.base) + layer * array.layer_stride;
    result.layers.push_back(static_cast<Byte*>(first));
  }
  return result;
}

template <class Byte>
Result<BasicKvView<Byte>> any_view_of(const shale_store& store, const shale_view* view) {
  SHALE_TRY(check_given(view, "view"));
  BasicKvView<Byte> result;
  result.geometry = store.geometry;
  result.keys = array_of<Byte>(view->keys, store.geometry.layers);
  result.values = array_of<Byte>(view->values, store.geometry.layers);
  result.physical_blocks = view->physical_blocks;
  result.tokens = view->tokens;
  if (view->block_table) result.block_table.assign(view->block_table, view->block_table + result.blocks());
  return result;
}

Result<AttentionStatistics> statistics_of(const shale_attention_statistics* given, const KvGeometry& geometry,
                                          std::uint32_t tokens) {
  if (!given) return AttentionStatistics();
  const std::size_t layers = geometry.layers, d = geometry.head_dim;
  const auto copied = [](const float* values, std::size_t count) {
    return values ? std::vector<float>(values, values + count) : std::vector<float>();
  };
  AttentionStatistics result{.layers = geometry.layers,
                             .query_heads = given->query_heads,
                             .kv_heads = geometry.kv_heads,
                             .head_dim = geometry.head_dim,
                             .tokens = tokens,
                             .window = given->queries ? given->window : 0};
  if (result.window > tokens) {
    return fail(ErrorCode::kInvalidArgument, "queries of {} tokens were given; the view has {}", result.window, tokens);
  }
  if (geometry.kv_heads == 0 || given->query_heads == 0 || given->query_heads % geometry.kv_heads != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} query heads: give a multiple of the {} KV heads", given->query_heads,
                geometry.kv_heads);
  }
  result.queries = copied(given->queries, layers * given->query_heads * result.window * d);
  result.attention_sums = copied(given->attention_sums, layers * geometry.kv_heads * tokens);
  result.query_mean = copied(given->query_mean, layers * given->query_heads * d);
  result.query_covariance = copied(given->query_covariance, layers * given->query_heads * d * d);
  return result;
}

}  // namespace

shale_code code_of(ErrorCode code) { return static_cast<shale_code>(static_cast<int>(code) + 1); }

shale_code failed(const Error& error) {
  message() = error.message;
  return code_of(error.code);
}

shale_code failed_without_memory() {
  message().clear();  // a message needs memory, too
  return SHALE_INTERNAL;
}

const char* last_message() { return message().c_str(); }

Status check_given(const void* pointer, std::string_view name) {
  if (pointer) return {};
  return fail(ErrorCode::kInvalidArgument, "{} is NULL: it must be given", name);
}

Result<std::span<const BlockKey>> keys_of(const shale_key* keys, std::size_t count) {
  return span_of(reinterpret_cast<const BlockKey*>(keys), count, "keys");
}

const shale_key* keys_to(const std::vector<BlockKey>& keys) { return reinterpret_cast<const shale_key*>(keys.data()); }

std::string_view text_of(const char* text) { return text ? std::string_view(text) : std::string_view(); }

KvGeometry geometry_of(const shale_geometry& geometry) {
  return {.element = static_cast<KvElement>(geometry.element),
          .layers = geometry.layers,
          .kv_heads = geometry.kv_heads,
          .head_dim = geometry.head_dim,
          .block_tokens = geometry.block_tokens ? geometry.block_tokens : 16,
          .opaque_bytes = {geometry.opaque_bytes[0], geometry.opaque_bytes[1]}};
}

Result<KvView> view_of(const shale_store& store, const shale_view* view) {
  return any_view_of<const std::byte>(store, view);
}

Result<MutableKvView> mutable_view_of(const shale_store& store, const shale_view* view) {
  return any_view_of<std::byte>(store, view);
}

StoreNeeds needs_of(const shale_needs* needs) {
  return needs ? StoreNeeds{.exact = !needs->lossy, .quality_min = needs->quality_min} : StoreNeeds();
}

Result<StoreHints> hints_of(const shale_store& store, const shale_save_hints& given, std::uint32_t tokens) {
  StoreHints hints{.tenant = std::string(text_of(given.tenant)), .first_block = given.first_block};
  SHALE_ASSIGN(const auto boundaries, span_of(given.boundaries, given.boundary_count, "boundaries"));
  hints.boundaries.assign(boundaries.begin(), boundaries.end());
  if (given.method) {
    SHALE_ASSIGN(hints.method, Method::parse(given.method));
  }
  if (given.keep != 0) hints.keep = given.keep;
  if (given.quality != 0) hints.quality = given.quality;
  hints.recompute_s = given.recompute_s;
  hints.label = text_of(given.label);
  hints.pin = given.pin;
  hints.time_to_live_s = given.time_to_live_s;
  SHALE_ASSIGN(hints.tokens, span_of(given.tokens, given.token_count, "tokens"));
  SHALE_ASSIGN(hints.statistics, statistics_of(given.statistics, store.geometry, tokens));
  if (given.run) std::memcpy(&hints.run, given.run, sizeof hints.run);
  return hints;
}

namespace {

Result<StorePlacement> placement_of(const shale_placement& given) {
  StorePlacement placement;
  if (given.planner) placement.planner = given.planner;
  if (given.alpha != 0) placement.alpha = given.alpha;
  constexpr std::array kPlanners = {"shale", "lru", "lfu"};
  if (std::ranges::find(kPlanners, placement.planner) == kPlanners.end()) {
    return fail(ErrorCode::kInvalidArgument, "there is no planner '{}' here: shale, lru or lfu", placement.planner);
  }
  if (!(placement.alpha > 0) || std::isinf(placement.alpha)) {
    return fail(ErrorCode::kInvalidArgument, "alpha is {}: give seconds above 0", given.alpha);
  }
  for (std::string_view left = text_of(given.methods); !left.empty();) {
    const std::size_t comma = std::min(left.find(','), left.size());
    SHALE_ASSIGN(const Method method, Method::parse(left.substr(0, comma)));
    SHALE_TRY(method.check());
    if (!method.scorer.empty()) {
      SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer));
      const std::string missing = missing_needs(scorer->needs(), 1, AttentionStatistics(), {});
      if (!missing.empty()) {
        return fail(ErrorCode::kInvalidArgument, "extents cannot become {}: they keep no {}", method.text(), missing);
      }
    }
    placement.methods.push_back(method);
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  if (given.quality_found) {
    placement.quality_found = [told = given.quality_found, context = given.context](const Method& method, double keep) {
      const double quality = told(context, method.text().c_str(), keep);
      return quality >= 0 ? std::min(quality, 1.0) : 0.0;
    };
  }
  if (!given.quality) return placement;
  placement.quality = [told = given.quality, context = given.context](const Hash128& run, const Method& method,
                                                                      double keep) -> std::optional<double> {
    std::array<std::uint8_t, sizeof run> bytes;
    std::memcpy(bytes.data(), &run, sizeof run);
    const double quality = told(context, bytes.data(), method.text().c_str(), keep);
    return quality >= 0 ? std::optional(std::min(quality, 1.0)) : std::nullopt;
  };
  return placement;
}

}  // namespace

Result<StoreOptions> options_of(const shale_store_options& given) {
  StoreOptions options;
  options.name_space = text_of(given.name_space);
  options.geometry = geometry_of(given.geometry);
  SHALE_ASSIGN(options.packing, packing_of(given.packing));
  if (options.name_space.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "name_space is empty: name the model, its weights and all else that KV depends on");
  }
  if (given.chunk_tokens) options.chunk_tokens = given.chunk_tokens;
  if (given.staging_bytes) options.staging_bytes = given.staging_bytes;
  if (given.manifest_cache_bytes) options.manifest_cache_bytes = given.manifest_cache_bytes;
  if (given.frequency_half_life_s != 0) options.frequency_half_life_s = given.frequency_half_life_s;
  if (given.threads != 0) options.threads = static_cast<unsigned>(std::max(given.threads, 0));
  if (given.events_max) options.events_max = given.events_max;
  SHALE_ASSIGN(options.placement, placement_of(given.placement));
  return options;
}

}  // namespace shale
