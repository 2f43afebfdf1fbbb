// quest (Tang et al. 2024, arXiv 2406.10774): which pages a query attends to, by an upper bound of its logits in each.
// It keeps every token: it saves attention time, never memory. Nothing calls it: Shale's attention reads all pages.
//
// Works on one KV head. A page's bounds are the smallest and largest key of each channel; no key of the page then has a
// larger product with a query than Σ_c max(query_c · smallest_c, query_c · largest_c).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scoring/scorer.h"

namespace shale {

struct PageBounds {
  std::uint32_t head_dim = 0;
  std::vector<float> smallest, largest;  // [pages][head_dim]

  std::uint32_t pages() const { return static_cast<std::uint32_t>(smallest.size() / std::max(head_dim, 1u)); }
};

// The bounds of a head's pages of `layer`. Keys that are not finite are left out; a page without any other has an empty
// range, of infinities, and the bound -infinity.
PageBounds page_bounds(const LayerKv<Half>& layer, std::uint32_t head);
PageBounds page_bounds(const LayerKv<float>& layer, std::uint32_t head);

// bounds[p]: no product of `query` [head_dim], finite, with a key of page p is larger, but for rounding.
std::vector<float> page_scores(const PageBounds& bounds, std::span<const float> query);

// The `count` pages (or all) of the largest bounds, the newer on ties, in ascending order.
std::vector<std::uint32_t> select_pages(std::span<const float> page_scores, std::uint32_t count);

}  // namespace shale
