#include <algorithm>
#include <cassert>
#include <cstring>

#include "codec/encode_steps.h"
#include "codec/entry_layer.h"
#include "codec/layout.h"
#include "codec/object.h"
#include "codec/packed_chunk.h"
#include "codec/tier_cut.h"
#include "codec/token_coding.h"
#include "codec/token_copy.h"
#include "scoring/budget.h"

namespace shale {
struct ObjectEncoder::State {
  EntryPages pages;
  ObjectLayout layout;
  std::unique_ptr<Scorer> scorer;  // null where nothing is ranked
  std::unique_ptr<Budget> budget;  // null where all heads keep as many tokens
  std::uint32_t window;            // the scorer's
  const CachegenTables* tables;
  const Observations* observations;
  ModelTraits model;
  Encoded encoded;
  std::vector<std::uint8_t> stratum_of;  // [layers][kv_heads][tokens], where ranked
  std::vector<float> scores;             // likewise, under a budget until all strata are cut
  std::uint32_t layers_scored = 0, strata_cut = 0, heads_encoded = 0, chunks_summed = 0;

  const PageShape& shape() const { return layout.shape(); }
  std::uint32_t heads() const { return shape().pages_per_slab(); }

  void score_layer(std::uint32_t layer);
  void cut(std::uint32_t stratum);
  void lay_out();
  void encode_head(std::uint32_t layer, std::uint32_t head);
  void encode_pages(std::uint32_t layer, std::uint32_t head);
  void encode_run(const HeadPages& source, std::uint32_t index, Codes<std::byte> out) const;
  void encode_stratum(const HeadPages& source, std::span<const std::uint8_t> stratum_of_token, std::uint32_t stratum,
                      std::uint32_t index, Codes<std::byte> out) const;
  // The parts of the chunks of (stratum, layer) that belong to one head.
  Codes<std::byte> sections(std::uint32_t stratum, std::uint32_t layer, std::uint32_t head);
  AlignedBuffer& chunk_of(std::uint32_t stratum, std::uint32_t plane, std::uint32_t layer);
  void seal(std::uint32_t chunk);
};

void ObjectEncoder::State::score_layer(std::uint32_t layer) {
  const std::uint32_t n = layout.tokens();
  const EntryLayer of_entry(pages, layer, encoded.manifest.first_position, model, *observations);
  const std::size_t layer_scores = std::size_t{shape().kv_heads} * n;
  if (budget) return scorer->score(of_entry.kv(), std::span(scores).subspan(layer * layer_scores, layer_scores));
  std::vector<float> of_layer(layer_scores);
  scorer->score(of_entry.kv(), of_layer);
  for (std::uint32_t head = 0; head < shape().kv_heads; ++head) {
    const std::size_t index = shape().page_index(layer, head);
    cut_head(std::span(of_layer).subspan(std::size_t{head} * n, n), std::span(stratum_of).subspan(index * n, n));
  }
}

// The last stratum has all that is left.
void ObjectEncoder::State::cut(std::uint32_t stratum) {
  if (stratum + 1 == layout.strata()) return lay_out();
  cut_tier(*budget, {shape().layers, shape().kv_heads, layout.tokens(), scores}, window, stratum, stratum_of);
}

// Once it is known what each head has of each stratum.
void ObjectEncoder::State::lay_out() {
  Manifest& manifest = encoded.manifest;
  if (budget) {
    manifest.head_strata = count_tiers(stratum_of, heads());
    scores = {};
    layout = ObjectLayout::make(shape(), manifest.method, layout.tokens(), tables, manifest.head_strata).value();
  }
  manifest.chunks = layout.chunks(layers_per_group(shape(), manifest.method, layout.tokens()));
  for (const ChunkInfo& chunk : manifest.chunks) {
    encoded.chunks.emplace_back(layout.unpacked_bytes(chunk.stratum, chunk.plane, chunk.first_layer, chunk.end_layer));
  }
}

AlignedBuffer& ObjectEncoder::State::chunk_of(std::uint32_t stratum, std::uint32_t plane, std::uint32_t layer) {
  const std::vector<ChunkInfo>& chunks = encoded.manifest.chunks;
  const auto found = std::ranges::find_if(chunks, [&](const ChunkInfo& chunk) {
    return chunk.stratum == stratum && chunk.plane == plane && layer < chunk.end_layer;
  });
  return encoded.chunks[static_cast<std::size_t>(found - chunks.begin())];
}

// Packs where that is to be done, and sums.
void ObjectEncoder::State::seal(std::uint32_t index) {
  ChunkInfo& chunk = encoded.manifest.chunks[index];
  AlignedBuffer& bytes = encoded.chunks[index];
  if (layout.packed(chunk.stratum)) {
    bytes = pack_chunk(layout.quantizer(chunk.stratum), shape().head_dim, layout.bitmap_bytes(), layout.sections(chunk),
                       bytes.bytes());
    chunk.bytes = bytes.size();
  }
  chunk.checksum = hash128(bytes.bytes());
}

Codes<std::byte> ObjectEncoder::State::sections(std::uint32_t stratum, std::uint32_t layer, std::uint32_t head) {
  const std::uint32_t first_layer = layer - layer % encoded.manifest.chunks.front().end_layer;
  const auto section = [&](std::uint32_t plane) {
    const auto [offset, bytes] = layout.section(stratum, plane, first_layer, shape().page_index(layer, head));
    return chunk_of(stratum, plane, layer).bytes().subspan(offset, bytes);
  };
  if (layout.planes(stratum) == 1) return {section(kBasePlane)};
  return {section(kBasePlane), section(kRefinementPlane)};
}

void ObjectEncoder::State::encode_head(std::uint32_t layer, std::uint32_t head) {
  if (layout.full()) return encode_pages(layer, head);
  const HeadPages source = pages.head(layer, head);
  if (!layout.ranked()) return encode_run(source, shape().page_index(layer, head), sections(0, layer, head));
  const std::size_t n = layout.tokens();
  const auto strata = std::span(stratum_of).subspan(shape().page_index(layer, head) * n, n);
  for (std::uint32_t s = 0; s < layout.strata(); ++s) {
    encode_stratum(source, strata, s, shape().page_index(layer, head), sections(s, layer, head));
  }
}

// Full objects hold, slab by slab, what the slab holds of the group's layers. Slots beyond the last token are zeroed:
// they may hold another request's tokens.
void ObjectEncoder::State::encode_pages(std::uint32_t layer, std::uint32_t head) {
  const std::span<std::byte> chunk = chunk_of(0, kBasePlane, layer).bytes();
  const std::size_t stride = chunk.size() / shape().pages_for(layout.tokens());
  const std::uint32_t first_layer = layer - layer % encoded.manifest.chunks.front().end_layer;
  pages.copy_pages(layer, head, chunk.subspan(shape().page_index(layer - first_layer, head) * shape().page_bytes()),
                   stride);
}

void ObjectEncoder::State::encode_run(const HeadPages& source, std::uint32_t index, Codes<std::byte> out) const {
  encode_tokens(layout.quantizer(0).of_head(index), source.pages, pages.shape(), layout.tokens(), out);
  take_codes(layout.quantizer(0), layout.tokens(), shape().head_dim, out);
  fill_padding(out);
}

void ObjectEncoder::State::encode_stratum(const HeadPages& source, std::span<const std::uint8_t> stratum_of_token,
                                          std::uint32_t stratum, std::uint32_t index, Codes<std::byte> out) const {
  const Quantizer& quantizer = layout.quantizer(stratum).of_head(index);
  const auto bitmap = out.base.first(layout.bitmap_bytes());
  std::fill(bitmap.begin(), bitmap.end(), std::byte{0});
  out.base = out.base.subspan(bitmap.size());
  BlockBuffer block(shape().head_dim);
  std::uint32_t filled = 0;
  const auto flush = [&] {
    quantizer.encode(block.const_rows(filled), take_codes(quantizer, filled, shape().head_dim, out));
    filled = 0;
  };
  for (std::uint32_t token = 0; token < stratum_of_token.size(); ++token) {
    if (stratum_of_token[token] != stratum) continue;
    bitmap[token / 8] |= std::byte{1} << token % 8;
    gather_tokens(source.pages, pages.shape(), token, 1, block.rows(), filled++);
    if (filled == kBlockTokens) flush();
  }
  flush();
  fill_padding(out);
}

ObjectEncoder::ObjectEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ObjectEncoder::~ObjectEncoder() = default;
ObjectEncoder::ObjectEncoder(ObjectEncoder&&) noexcept = default;
ObjectEncoder& ObjectEncoder::operator=(ObjectEncoder&&) noexcept = default;

Result<ObjectEncoder> ObjectEncoder::start(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot,
                                           Manifest identity, const ScorerOptions& options,
                                           const Observations& observations, const ModelTraits& model,
                                           const CachegenTables* tables) {
  const PageShape& shape = pool.shape();
  const auto tokens = static_cast<std::uint32_t>(identity.tokens.size());
  SHALE_ASSIGN(ObjectLayout layout, ObjectLayout::make(shape, identity.method, tokens, tables));
  if (slabs.size() != shape.pages_for(first_slot + tokens) || first_slot >= shape.page_tokens) {
    return fail(ErrorCode::kInvalidArgument, "an entry of {} tokens does not lie in {} slabs", tokens, slabs.size());
  }
  std::unique_ptr<Scorer> scorer;
  if (layout.ranked()) {
    SHALE_ASSIGN(scorer, ready_scorer(identity.method.scorer, options, shape, tokens, observations, model));
  }

  identity.shape = shape;
  identity.strata_tokens.assign(layout.strata_tokens().begin(), layout.strata_tokens().end());
  std::unique_ptr<Budget> budget;
  if (!identity.method.budget.empty()) {
    SHALE_ASSIGN(budget, make_budget(identity.method.budget));
  }
  auto state = std::make_unique<State>(State{.pages = EntryPages(pool, std::move(slabs), first_slot, tokens),
                                             .layout = std::move(layout),
                                             .scorer = std::move(scorer),
                                             .budget = std::move(budget),
                                             .window = options.window,
                                             .tables = tables,
                                             .observations = &observations,
                                             .model = model,
                                             .encoded = {std::move(identity), {}},
                                             .stratum_of = {},
                                             .scores = {}});
  const std::size_t ranked = std::size_t{state->heads()} * tokens;
  if (state->scorer) state->stratum_of.assign(ranked, kKeepGrid.size() - 1);
  if (state->budget) {
    state->scores.resize(ranked);
  } else {
    state->lay_out();
  }
  return ObjectEncoder(std::move(state));
}

bool ObjectEncoder::step(Executor& executor) {
  State& s = *state_;
  const auto run = [&](std::uint32_t& done, std::uint32_t count, const auto& work) {
    executor.parallel_for(count, [&, first = done](std::size_t i) { work(first + static_cast<std::uint32_t>(i)); });
    done += count;
  };
  const std::uint32_t layers = s.shape().layers, kv_heads = s.shape().kv_heads;
  if (s.scorer && s.layers_scored < layers) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(layers - s.layers_scored, executor.threads()));
    run(s.layers_scored, count, [&](std::uint32_t layer) { s.score_layer(layer); });
  } else if (s.budget && s.strata_cut < s.layout.strata()) {
    s.cut(s.strata_cut++);
  } else if (s.heads_encoded < s.heads()) {
    const std::size_t head_bytes = s.shape().token_bytes() / s.heads() * s.layout.tokens();
    run(s.heads_encoded, pieces_per_step(head_bytes, executor.threads(), s.heads() - s.heads_encoded),
        [&](std::uint32_t i) { s.encode_head(i / kv_heads, i % kv_heads); });
  } else if (s.chunks_summed < s.encoded.chunks.size()) {
    const auto chunks = static_cast<std::uint32_t>(s.encoded.chunks.size());
    const std::size_t chunk_bytes = s.encoded.chunks[s.chunks_summed].size();
    const std::size_t effort = s.layout.packed(s.encoded.manifest.chunks[s.chunks_summed].stratum) ? kPackingEffort : 1;
    run(s.chunks_summed, pieces_per_step(chunk_bytes * effort, executor.threads(), chunks - s.chunks_summed),
        [&](std::uint32_t i) { s.seal(i); });
  }
  return s.encoded.chunks.empty() || s.chunks_summed < s.encoded.chunks.size();
}

ObjectEncoder::Encoded ObjectEncoder::finish() {
  assert(state_->chunks_summed == state_->encoded.chunks.size());
  return std::move(state_->encoded);
}

}  // namespace shale
