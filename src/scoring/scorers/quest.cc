#include "scoring/scorers/quest.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shale {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float as_float(float value) { return value; }
float as_float(Half value) { return to_float(value); }

template <class Element>
PageBounds bounds_of(const LayerKv<Element>& layer, std::uint32_t head) {
  const std::size_t pages = layer.pages_per_head(), d = layer.head_dim;
  PageBounds bounds{.head_dim = layer.head_dim,
                    .smallest = std::vector<float>(pages * d, kInfinity),
                    .largest = std::vector<float>(pages * d, -kInfinity)};
  std::vector<float> key(d);
  for (std::uint32_t token = 0; token < layer.tokens; ++token) {
    const std::size_t page = token / layer.block_size;
    const Element* keys = layer.head(head)[page].keys + token % layer.block_size;
    for (std::size_t c = 0; c < d; ++c) key[c] = as_float(keys[c * layer.block_size]);
    if (!std::ranges::all_of(key, [](float value) { return std::isfinite(value); })) continue;
    for (std::size_t c = 0; c < d; ++c) {
      bounds.smallest[page * d + c] = std::min(bounds.smallest[page * d + c], key[c]);
      bounds.largest[page * d + c] = std::max(bounds.largest[page * d + c], key[c]);
    }
  }
  return bounds;
}

}  // namespace

PageBounds page_bounds(const LayerKv<Half>& layer, std::uint32_t head) { return bounds_of(layer, head); }
PageBounds page_bounds(const LayerKv<float>& layer, std::uint32_t head) { return bounds_of(layer, head); }

std::vector<float> page_scores(const PageBounds& bounds, std::span<const float> query) {
  std::vector<float> scores;
  for (std::size_t first = 0; first < bounds.smallest.size(); first += query.size()) {
    float score = bounds.smallest[first] > bounds.largest[first] ? -kInfinity : 0.0f;
    for (std::size_t c = 0; score > -kInfinity && c < query.size(); ++c) {
      score += std::max(query[c] * bounds.smallest[first + c], query[c] * bounds.largest[first + c]);
    }
    scores.push_back(score);
  }
  return scores;
}

std::vector<std::uint32_t> select_pages(std::span<const float> page_scores, std::uint32_t count) {
  std::vector<std::uint32_t> pages = ranking(page_scores);
  pages.resize(std::min<std::size_t>(pages.size(), count));
  std::ranges::sort(pages);
  return pages;
}

}  // namespace shale
