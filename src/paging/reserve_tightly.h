// Vectors that grow with what a cache holds, and take little more than that: where a vector would double, these grow by
// a sixteenth, and an element is moved 16 times on average.
#pragma once

#include <cstddef>
#include <vector>

namespace shale {

// Reserves memory for `size` elements.
template <class Element>
void reserve_tightly(std::vector<Element>& elements, std::size_t size) {
  if (size > elements.capacity()) elements.reserve(size + size / 16 + 16);
}

// Appends copies of `element` until there are `size`.
template <class Element>
void resize_tightly(std::vector<Element>& elements, std::size_t size, const Element& element = {}) {
  reserve_tightly(elements, size);
  elements.resize(size, element);
}

}  // namespace shale
