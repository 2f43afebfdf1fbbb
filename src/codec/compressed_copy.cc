#include "codec/compressed_copy.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "codec/views/sequence_pages.h"
#include "quantizers/token_copy.h"

namespace shale {
namespace {

// One head's kept tokens into its new pages, a block at a time. Returns the bytes that storing them would take.
std::size_t copy_head(const HeadPages& source, std::span<const std::uint32_t> kept, const Quantizer* quantizer,
                      std::span<const std::span<std::byte>> to, const PageShape& source_shape, const PageShape& shape) {
  BlockBuffer block(shape.head_dim);
  std::vector<std::byte> base, refinement, all;
  std::size_t bytes = 0;
  for (std::size_t first = 0; first < kept.size(); first += kBlockTokens) {
    const auto tokens = kept.subspan(first, std::min<std::size_t>(kBlockTokens, kept.size() - first));
    const auto count = static_cast<std::uint32_t>(tokens.size());
    for (std::uint32_t i = 0; i < count; ++i) gather_tokens(source.pages, source_shape, tokens[i], 1, block.rows(), i);
    if (quantizer) {
      base.resize(quantizer->base_bytes(count, shape.head_dim));
      refinement.resize(quantizer->refinement_bytes(count, shape.head_dim));
      quantizer->encode(block.const_rows(count), {base, refinement});
      quantizer->decode({base, refinement}, block.rows(count));
      bytes += base.size() + refinement.size();
      if (quantizer->packs()) all.insert(all.end(), base.begin(), base.end());
    } else {
      bytes += std::size_t{count} * shape.head_dim * 2 * sizeof(Half);
    }
    scatter_tokens(block.const_rows(count), 0, to, shape, static_cast<std::uint32_t>(first), count);
  }
  flush_stream();
  if (!quantizer || !quantizer->packs()) return bytes;
  std::vector<std::byte> packed;
  quantizer->pack(all, static_cast<std::uint32_t>(kept.size()), shape.head_dim, packed);
  return packed.size();
}

}  // namespace

Result<CompressedCopy> compressed_copy(PagePool& pool, const Sequence& context,
                                       std::span<const std::vector<std::uint32_t>> kept, const Quantizer* quantizer,
                                       Executor& executor) {
  const PageShape& shape = pool.shape();
  const std::uint32_t tokens = context.length();
  assert(kept.size() == shape.pages_per_block() && tokens > 0 && tokens % shape.block_size == 0);
  if (quantizer && shape.head_dim % quantizer->channel_multiple() != 0) {
    return fail(ErrorCode::kUnsupported, "{} takes head dimensions that are multiples of {}, not {}", quantizer->name(),
                quantizer->channel_multiple(), shape.head_dim);
  }
  const SequencePages pages(context, tokens, executor);
  std::vector<std::uint32_t> counts;
  for (const auto& head : kept) counts.push_back(static_cast<std::uint32_t>(head.size()));

  CompressedCopy copy{Sequence(pool)};
  SHALE_TRY(copy.sequence.append(tokens));
  copy.sequence.keep_rows(0, tokens, counts);
  const WritableHostView view = pool.host_view();
  std::atomic<std::uint64_t> bytes = 0;
  executor.parallel_for(kept.size(), [&](std::size_t i) {
    const auto index = static_cast<std::uint32_t>(i);
    const std::uint32_t layer = index / shape.kv_heads, head = index % shape.kv_heads;
    std::vector<std::span<std::byte>> to;
    for (const PageSlot slot : copy.sequence.table(layer, head).pages) to.push_back(view.writable_bytes(slot.page));
    const std::size_t bitmap = kept[i].size() < tokens ? (tokens + 7) / 8 : 0;
    bytes += bitmap + copy_head(pages->head(layer, head), kept[i], quantizer ? &quantizer->of_head(index) : nullptr, to,
                                pages->shape(), shape);
  });
  copy.bytes = bytes;
  return copy;
}

}  // namespace shale
