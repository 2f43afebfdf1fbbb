#include <algorithm>

#include "attention/attention.h"
#include "paging/page_tokens.h"

namespace shale {

void write_kv(PagePool& pool, const Sequence& sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
              const float* keys, const float* values, std::size_t stride) {
  const PageShape& shape = pool.shape();
  for (std::uint32_t i = 0; i < count;) {
    const Sequence::Place place = sequence.appended(layer, head, i, count);
    const std::uint32_t tokens = std::min(count - i, shape.block_size - place.slot);
    write_tokens(shape, pool.host_view().writable_bytes(place.page), place.slot, tokens,
                 {keys + i * stride, values + i * stride, stride});
    i += tokens;
  }
}

}  // namespace shale
