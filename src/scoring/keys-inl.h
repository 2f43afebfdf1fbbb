// Walks over the keys of a page, where lanes are tokens, so that nothing is summed across lanes; and norms of values.
#if defined(SHALE_SCORING_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_SCORING_KEYS_INL_H_
#undef SHALE_SCORING_KEYS_INL_H_
#else
#define SHALE_SCORING_KEYS_INL_H_
#endif

#include <algorithm>
#include <span>

#include "core/simd-inl.h"
#include "scoring/scorer.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// Calls body(d) with the widest tag of float lanes that divides a page.
template <class Body>
HWY_INLINE void with_page_lanes(std::uint32_t block_size, const Body& body) {
  if (block_size == 8) {
    body(hn::CappedTag<float, 8>());
  } else {
    body(hn::CappedTag<float, 16>());
  }
}

// Tokens that one vector holds are a *column* of a page. Columns are walked side by side, row by row, while the same
// rows of the columns after them are asked for: pages are scattered over the pool, the hardware's own prefetcher
// follows each, and only several at once keep the memory busy.
inline constexpr std::uint32_t kColumns = 8;

template <class Element>
struct Columns {
  const Element* keys[kColumns];
  const Element* values[kColumns];
};

// The columns of `pages` from `token` on, `lanes` tokens each; those past the end repeat the last.
template <class Element>
HWY_INLINE Columns<Element> columns_at(const LayerKv<Element>& layer,
                                       std::span<const typename LayerKv<Element>::Page> pages, std::uint32_t token,
                                       std::uint32_t lanes) {
  token = std::min(token, (layer.tokens - 1) / lanes * lanes);
  std::uint32_t page = token / layer.block_size, slot = token % layer.block_size;
  Columns<Element> columns;
  for (std::uint32_t i = 0; i < kColumns; ++i) {
    columns.keys[i] = pages[page].keys + slot;
    columns.values[i] = pages[page].values + std::size_t{slot} * layer.head_dim;
    if (token + lanes >= layer.tokens) continue;
    token += lanes;
    slot += lanes;
    if (slot == layer.block_size) slot = 0, ++page;
  }
  return columns;
}

// Calls body(columns, next, token) for a head's columns, kColumns at a time, `token` the first of them.
template <class D, class Element, class Body>
HWY_INLINE void for_each_columns(D d, const LayerKv<Element>& layer, std::uint32_t head, const Body& body) {
  const auto pages = layer.head(head);
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d)), step = kColumns * lanes;
  Columns<Element> columns = columns_at(layer, pages, 0, lanes);
  for (std::uint32_t token = 0; token < layer.tokens; token += step) {
    const Columns<Element> next = columns_at(layer, pages, token + step, lanes);
    body(columns, next, token);
    columns = next;
  }
}

// Stores one result a token, of those that exist.
template <class D>
HWY_INLINE void store_columns(D d, const hn::Vec<D>* results, std::uint32_t tokens, float* to) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  for (std::uint32_t first = 0, i = 0; first < tokens && i < kColumns; first += lanes, ++i) {
    store_first(d, results[i], to + first, tokens - first);
  }
}

// results[i] = Σ_c term(c, key of channel c of column i, sum so far).
template <class D, class Element, class Term>
HWY_INLINE void sum_channels(D d, const LayerKv<Element>& layer, const Columns<Element>& columns,
                             const Columns<Element>& next, hn::Vec<D>* results, const Term& term) {
  const std::size_t stride = layer.block_size;
  const bool line_a_row = stride * sizeof(Element) >= 64;  // else two neighbours share one
  hn::Vec<D> sums[kColumns];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (std::uint32_t c = 0; c < layer.head_dim; c += 2) {
    const std::size_t row = c * stride;
    HWY_UNROLL(8)
    for (std::uint32_t i = 0; i < kColumns; ++i) {
      prefetch(next.keys[i] + row);
      if (line_a_row) prefetch(next.keys[i] + row + stride);
      sums[i] = term(c, load(d, columns.keys[i] + row), sums[i]);
      sums[i] = term(c + 1, load(d, columns.keys[i] + row + stride), sums[i]);
    }
  }
  for (std::uint32_t i = 0; i < kColumns; ++i) results[i] = sums[i];
}

// ‖k‖² of every token of the columns.
template <class D, class Element>
HWY_INLINE void key_squares(D d, const LayerKv<Element>& layer, const Columns<Element>& columns,
                            const Columns<Element>& next, hn::Vec<D>* squares) {
  sum_channels(d, layer, columns, next, squares,
               [](std::uint32_t, hn::Vec<D> key, hn::Vec<D> sum) HWY_ATTR { return hn::MulAdd(key, key, sum); });
}

// ‖v‖² of one token's row.
template <class D, class Element>
HWY_INLINE float value_squares(D d, const Element* HWY_RESTRICT row, std::uint32_t head_dim) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  std::uint32_t c = 0;
  for (; c + 2 * lanes <= head_dim; c += 2 * lanes) {
    const auto v0 = load(d, row + c), v1 = load(d, row + c + lanes);
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; c < head_dim; ++c) {
    const float value = hn::GetLane(load(hn::CappedTag<float, 1>(), row + c));
    sum += value * value;
  }
  return sum;
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
