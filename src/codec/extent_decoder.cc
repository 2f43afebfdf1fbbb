#include <algorithm>
#include <new>

#include "codec/extent_decoding.h"

namespace shale {

ExtentDecoder::ExtentDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExtentDecoder::~ExtentDecoder() = default;
ExtentDecoder::ExtentDecoder(ExtentDecoder&&) noexcept = default;
ExtentDecoder& ExtentDecoder::operator=(ExtentDecoder&&) noexcept = default;

namespace {

// The first chunk of which some layer of the group sees anything; sight.end_chunk where none does.
std::uint32_t first_chunk_in_sight(const ExtentManifest& manifest, const ExtentSpan& span, const Sight& sight,
                                   const ExtentManifest::Layers& group) {
  if (manifest.windows.empty() || manifest.windows[group.first] == 0) return sight.first_chunk;
  const std::uint32_t widest =
      *std::max_element(manifest.windows.begin() + group.first, manifest.windows.begin() + group.end);
  const std::uint64_t end = std::uint64_t{span.tokens} + span.tokens_after;
  const std::uint64_t hidden = end >= widest ? end - widest + 1 : 0;
  if (hidden >= span.tokens) return sight.end_chunk;
  return sight.first_chunk + static_cast<std::uint32_t>(hidden) / manifest.chunk_tokens;
}

Status check_span(const ExtentManifest& manifest, const ExtentSpan& span) {
  const std::uint64_t first = std::uint64_t{span.first_chunk} * manifest.chunk_tokens;
  const bool inside = first < manifest.tokens && span.tokens >= 1 && span.tokens <= manifest.tokens - first;
  if (inside && span.keep > 0 && span.keep <= 1 &&
      (!manifest.geometry.opaque() || span.tokens % manifest.geometry.block_tokens == 0)) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      "keep {} of {} tokens from chunk {} on of an extent of {} tokens in chunks of {} cannot be loaded; opaque "
      "blocks are loaded whole",
      span.keep, span.tokens, span.first_chunk, manifest.tokens, manifest.chunk_tokens);
}

Status check_view(const ExtentManifest& manifest, const ExtentSpan& span, const MutableKvView& view) {
  SHALE_TRY(view.check());
  KvGeometry expected = manifest.geometry;
  if (!manifest.method.is_full() && !view.geometry.opaque()) expected.element = view.geometry.element;
  if (view.geometry != expected) {
    return fail(ErrorCode::kMismatch,
                "an extent of {} layers, {} KV heads of {} channels and {} blocks of {} cannot be "
                "loaded into a view of {}, {} of {} and {} of {}",
                expected.layers, expected.kv_heads, expected.head_dim, name_of(expected.element), expected.block_tokens,
                view.geometry.layers, view.geometry.kv_heads, view.geometry.head_dim, name_of(view.geometry.element),
                view.geometry.block_tokens);
  }
  const std::vector<std::uint32_t> rows = extent_rows(manifest, span);
  const std::uint32_t needed = rows.empty() ? span.tokens : std::ranges::max(rows);
  if (view.tokens >= needed) return {};
  return fail(ErrorCode::kInvalidArgument, "a view of {} tokens has no room for {} rows", view.tokens, needed);
}

}  // namespace

std::vector<std::uint32_t> extent_rows(const ExtentManifest& manifest, const ExtentSpan& span) {
  const Sight sight(manifest, span);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t head = 0; head < manifest.geometry.layers * manifest.geometry.kv_heads; ++head) {
    rows.push_back(rows_between(manifest, head, sight.first_token, sight.end_token, sight.tiers));
  }
  return rows;
}

Result<ExtentDecoder> ExtentDecoder::start(const ExtentManifest& manifest, const ExtentSpan& span, MutableKvView view,
                                           const CachegenTables* tables) {
  SHALE_TRY(check_span(manifest, span));
  SHALE_TRY(check_view(manifest, span, view));
  SHALE_ASSIGN(ExtentLayout layout, ExtentLayout::make(manifest, tables));
  auto state = std::make_unique<State>(manifest, std::move(layout), Sight(manifest, span), std::move(view));
  for (const ExtentManifest::Layers& group : state->layout.groups()) {
    state->first_chunks.push_back(first_chunk_in_sight(manifest, span, state->sight, group));
  }
  if (state->layout.exact()) {
    state->view.tokens = span.tokens;
    state->blocks = std::make_unique<BlockCopies<std::byte>>(state->view, manifest.packing);
  } else {
    state->tokens = TokenCopies(state->view);
  }
  state->plan();
  return ExtentDecoder(std::move(state));
}

const std::vector<ExtentRange>& ExtentDecoder::ranges() const { return state_->ranges; }
const std::vector<ExtentManifest::Layers>& ExtentDecoder::layer_groups() const { return state_->layout.groups(); }

Status ExtentDecoder::decode(std::uint32_t range, std::span<const std::byte> bytes, Executor& executor) {
  State& s = *state_;
  if (range >= s.ranges.size() || bytes.size() != s.ranges[range].bytes ||
      reinterpret_cast<std::uintptr_t>(bytes.data()) % kBlobAlignment != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} bytes are not range {} of {}, or do not begin at a multiple of {}",
                bytes.size(), range, s.ranges.size(), kBlobAlignment);
  }
  {
    const std::lock_guard lock(s.mutex);
    if (s.progress[range] != State::Progress::kWanted) {
      return fail(ErrorCode::kInvalidArgument, "range {} was decoded or skipped before", range);
    }
    s.progress[range] = State::Progress::kTaken;
  }
  const State::Source source{&s.ranges[range], bytes};
  const std::uint32_t tier = s.blob(*source.range).tier;
  try {
    if (s.layout.exact()) return s.decode_exact(*source.range, bytes, executor);
    if (s.layout.packed(tier)) return s.decode_packed(source, executor);
    if (const auto partner = s.partner(range)) return s.decode_nested(source, *partner, executor);
    return s.decode_lossy(source, nullptr, &source, executor);
  } catch (const std::bad_alloc&) {
    Error why{ErrorCode::kInternal, "there is no memory for what is being decoded"};
    {
      const std::lock_guard lock(s.mutex);
      s.progress[range] = State::Progress::kWanted;
    }
    skip(range, why);
    return std::unexpected(std::move(why));
  }
}

void ExtentDecoder::skip(std::uint32_t range, const Error& why) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.progress[range] != State::Progress::kWanted) return;
  s.progress[range] = State::Progress::kSkipped;
  for (std::uint32_t chunk = s.ranges[range].first_chunk; chunk < s.ranges[range].end_chunk; ++chunk) {
    if (!s.failures[chunk]) s.failures[chunk] = why;
  }
}

const Error* ExtentDecoder::failure(std::uint32_t chunk) const {
  const std::lock_guard lock(state_->mutex);
  const auto& failure = state_->failures[chunk];
  return failure ? &*failure : nullptr;
}

std::uint32_t ExtentDecoder::rows(std::uint32_t head, std::uint32_t end_chunk) const {
  const State& s = *state_;
  const std::uint32_t end = std::min(s.sight.end_token, end_chunk * s.manifest.chunk_tokens);
  return rows_between(s.manifest, head, s.sight.first_token, std::max(s.sight.first_token, end), s.sight.tiers);
}

std::uint32_t ExtentDecoder::first_row(std::uint32_t layer) const {
  const State& s = *state_;
  const auto& groups = s.layout.groups();
  const auto group = std::ranges::find_if(groups, [&](const auto& each) { return layer < each.end; });
  const std::uint32_t first = s.first_chunks[static_cast<std::size_t>(group - groups.begin())];
  return std::min((first - s.sight.first_chunk) * s.manifest.chunk_tokens, s.sight.end_token - s.sight.first_token);
}

std::vector<std::uint32_t> ExtentDecoder::positions(std::uint32_t head) const {
  const State& s = *state_;
  std::vector<std::uint32_t> positions;
  for (std::uint32_t token = s.sight.first_token; token < s.sight.end_token; ++token) {
    if (s.manifest.tiers.empty() || s.manifest.tiers.tier(head, token) < s.sight.tiers) positions.push_back(token);
  }
  return positions;
}

}  // namespace shale
