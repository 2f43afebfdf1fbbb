// Walks over the keys of a page: lanes are tokens, so that nothing is summed across lanes.
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

// Pages are scattered over the pool: what is needed a few pages on is asked for now.
inline constexpr std::size_t kPrefetchPages = 4;

template <class Page>
HWY_INLINE const Page& page_ahead(std::span<const Page> pages, std::size_t page) {
  return pages[std::min(page + kPrefetchPages, pages.size() - 1)];
}

// Calls body(d) with the widest tag of float lanes that divides a page.
template <class Body>
HWY_INLINE void with_page_lanes(std::uint32_t page_tokens, const Body& body) {
  if (page_tokens == 8) {
    body(hn::CappedTag<float, 8>());
  } else {
    body(hn::CappedTag<float, 16>());
  }
}

// Asks for four rows; neighbours that share a cache line are asked for once.
template <class Element>
HWY_INLINE void prefetch_rows(const Element* rows, std::uint32_t stride) {
  hwy::Prefetch(rows);
  hwy::Prefetch(rows + 2 * stride);
  if (stride * sizeof(Element) >= 64) {
    hwy::Prefetch(rows + stride);
    hwy::Prefetch(rows + 3 * stride);
  }
}

// ‖k‖² of the tokens from `keys` on (row 0 of the first lane's token). `ahead`: the same place of a page needed soon.
template <class D, class Element>
HWY_INLINE hn::Vec<D> key_squares(D d, const Element* HWY_RESTRICT keys, std::uint32_t stride, std::uint32_t head_dim,
                                  const Element* ahead) {
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::uint32_t c = 0;
  for (; c + 4 <= head_dim; c += 4) {
    const Element* row = keys + std::size_t{c} * stride;
    prefetch_rows(ahead + std::size_t{c} * stride, stride);
    const auto k0 = load(d, row), k1 = load(d, row + stride);
    const auto k2 = load(d, row + 2 * stride), k3 = load(d, row + 3 * stride);
    sum0 = hn::MulAdd(k0, k0, sum0);
    sum1 = hn::MulAdd(k1, k1, sum1);
    sum2 = hn::MulAdd(k2, k2, sum2);
    sum3 = hn::MulAdd(k3, k3, sum3);
  }
  for (; c < head_dim; ++c) {
    const auto k = load(d, keys + std::size_t{c} * stride);
    sum0 = hn::MulAdd(k, k, sum0);
  }
  return hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
}

// Σ_c weights[c] · k_c of the tokens from `keys` on.
template <class D, class Element>
HWY_INLINE hn::Vec<D> key_dots(D d, const Element* HWY_RESTRICT keys, std::uint32_t stride, std::uint32_t head_dim,
                               const float* HWY_RESTRICT weights, const Element* ahead) {
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::uint32_t c = 0;
  for (; c + 4 <= head_dim; c += 4) {
    const Element* row = keys + std::size_t{c} * stride;
    prefetch_rows(ahead + std::size_t{c} * stride, stride);
    sum0 = hn::MulAdd(load(d, row), hn::Set(d, weights[c]), sum0);
    sum1 = hn::MulAdd(load(d, row + stride), hn::Set(d, weights[c + 1]), sum1);
    sum2 = hn::MulAdd(load(d, row + 2 * stride), hn::Set(d, weights[c + 2]), sum2);
    sum3 = hn::MulAdd(load(d, row + 3 * stride), hn::Set(d, weights[c + 3]), sum3);
  }
  for (; c < head_dim; ++c) {
    sum0 = hn::MulAdd(load(d, keys + std::size_t{c} * stride), hn::Set(d, weights[c]), sum0);
  }
  return hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
