#include "engine/cached_layer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "paging/page_tokens.h"

namespace shale {

CachedLayer::CachedLayer(Sequence& sequence, std::uint32_t layer, const ModelInfo& model, const LiveCapture* capture,
                         const Calibration* calibration)
    : sequence_(sequence), layer_(layer), model_(model), capture_(capture), calibration_(calibration) {
  const std::uint32_t block_size = sequence.pool().shape().block_size;
  for (std::uint32_t head = 0; head < model.kv_heads; ++head) {
    std::vector<std::uint32_t>& slots = slots_.emplace_back();
    for_each_token(sequence.table(layer, head).pages, block_size, [&](std::uint32_t slot) { slots.push_back(slot); });
    const auto positions = sequence.positions(layer, head);
    const auto position = [positions](std::uint32_t slot) { return positions[slot]; };
    if (!std::ranges::is_sorted(slots, {}, position)) std::ranges::sort(slots, {}, position);
  }
}

// A head's tokens in order, as halves: its own pages where they lie so, else a copy.
void CachedLayer::lay_out(std::uint32_t head, std::vector<LayerKv<Half>::Page>& pages,
                          std::vector<Half>& memory) const {
  const HostView view = std::as_const(sequence_.pool()).host_view();
  const PageShape& shape = view.shape();
  const std::span<const std::uint32_t> slots = slots_[head];
  const auto table = sequence_.table(layer_, head).pages;
  const bool in_place =
      shape.element == PageElement::kHalf && slots.back() == slots.size() - 1 && std::ranges::is_sorted(slots);
  if (in_place) {
    for (const PageSlot slot : table) {
      const PageView page = view.page(slot.page);
      pages.push_back({page.keys, page.values});
    }
    return;
  }
  memory.resize(std::size_t{shape.pages_for(static_cast<std::uint32_t>(slots.size()))} * 2 * shape.key_elements());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Half* to = &memory[i / shape.block_size * 2 * shape.key_elements()];
    if (i % shape.block_size == 0) pages.push_back({to, to + shape.key_elements()});
    const std::size_t target = i % shape.block_size;
    read_tokens(shape, view.bytes(table[slots[i] / shape.block_size].page), slots[i] % shape.block_size, 1, to + target,
                shape.block_size, to + shape.key_elements() + target * shape.head_dim);
  }
}

void CachedLayer::score(const Scorer& scorer, std::span<float> scores, std::size_t stride) const {
  const std::uint32_t heads = model_.kv_heads, group = model_.query_heads / heads;
  const bool alike = std::ranges::all_of(slots_, [this](const auto& each) { return each.size() == slots_[0].size(); });
  const std::uint32_t together = alike ? heads : 1;
  const ScorerNeeds needs = scorer.needs();
  for (std::uint32_t first = 0; first < heads; first += together) {
    const auto tokens = static_cast<std::uint32_t>(slots_[first].size());
    LayerKv<Half> kv{.tokens = tokens,
                     .kv_heads = together,
                     .head_dim = model_.head_dim,
                     .block_size = sequence_.pool().shape().block_size,
                     .layer = layer_,
                     .first_head = first,
                     .pages = {},
                     .query_heads = together * group,
                     .first_position = sequence_.length() - tokens,
                     .rope = model_.ropes[layer_],
                     .attention_scale = model_.attention_scale,
                     .calibration = calibration_};
    std::vector<LayerKv<Half>::Page> pages;
    std::vector<std::vector<Half>> memory(together);
    for (std::uint32_t h = 0; h < together; ++h) lay_out(first + h, pages, memory[h]);
    kv.pages = pages;
    std::vector<float> queries, sums;
    if (needs.last_queries > 0) {
      kv.window_tokens = std::min(tokens, capture_->queries_seen());
      queries = capture_->queries(layer_, kv.window_tokens);
      const std::size_t head_size = std::size_t{kv.window_tokens} * model_.head_dim;
      kv.queries = std::span(queries).subspan(first * group * head_size, kv.query_heads * head_size);
    }
    if (needs.attention_sums) {
      for (std::uint32_t h = first; h < first + together; ++h) {
        const std::span<const float> notes = sequence_.notes(layer_, h);
        for (const std::uint32_t slot : slots_[h]) sums.push_back(notes[slot]);
      }
      kv.attention_sums = sums;
    }
    std::vector<float> of_heads(std::size_t{together} * tokens);
    scorer.score(kv, of_heads);
    for (std::uint32_t h = 0; h < together; ++h) {
      std::copy_n(&of_heads[std::size_t{h} * tokens], tokens, &scores[(first + h) * stride]);
    }
  }
}

}  // namespace shale
