#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstring>
#include <optional>

#include "codec/layout.h"
#include "codec/object.h"
#include "codec/packed_chunk.h"
#include "codec/token_coding.h"
#include "codec/token_copy.h"

namespace shale {
namespace {

// Tokens that one piece of work decodes: whole blocks and whole pages.
constexpr std::uint32_t kPieceTokens = 1024;

std::uint32_t pieces_of(std::uint32_t tokens) { return (tokens + kPieceTokens - 1) / kPieceTokens; }

// How many of a bitmap's tokens lie below `logical`; nothing unless it marks `expected` of `tokens`.
std::optional<std::uint32_t> tokens_below(std::span<const std::byte> bitmap, std::uint32_t tokens,
                                          std::uint32_t expected, std::uint32_t logical) {
  std::uint32_t marked = 0, beyond = 0, below = 0;
  for (std::uint32_t first = 0; first < bitmap.size() * 8; first += 64) {
    std::uint64_t word = 0;
    std::memcpy(&word, bitmap.data() + first / 8, sizeof word);
    const auto before = [&](std::uint32_t end) {
      if (end <= first) return 0u;
      const std::uint64_t mask = end - first >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (end - first)) - 1;
      return static_cast<std::uint32_t>(std::popcount(word & mask));
    };
    const auto all = static_cast<std::uint32_t>(std::popcount(word));
    marked += all;
    beyond += all - before(tokens);
    below += before(logical);
  }
  if (marked != expected || beyond != 0) return std::nullopt;
  return below;
}

}  // namespace

struct ObjectDecoder::State {
  ObjectLayout layout;
  std::vector<ChunkInfo> chunks;      // the manifest's
  std::vector<std::uint32_t> wanted;  // of them
  std::uint32_t strata, logical_tokens;
  std::vector<std::uint32_t> windows;  // per layer, or empty
  Sequence* sequence;
  std::vector<Sequence::Stratum> pages;  // per stratum; none for full objects
  std::vector<SlabId> slabs;             // of a full object's tokens: the sequence goes on while chunks arrive
  std::uint32_t shift;                   // slot of its first token in slabs[0]
  std::vector<bool> taken;               // per chunk of the manifest
  std::vector<AlignedBuffer> waiting;    // likewise: bases and refinements until the other is there

  const PageShape& shape() const { return layout.shape(); }
  // The wanted chunk that the other plane of the same tokens and layers is in; nothing where there is one plane.
  std::optional<std::uint32_t> partner(std::uint32_t chunk) const;

  // Tokens of the entry that a layer's window hides from every query after the hit.
  std::uint32_t hidden(std::uint32_t layer) const {
    const std::uint32_t window = windows.empty() ? 0 : windows[layer];
    return window != 0 && logical_tokens >= window ? logical_tokens - window + 1 : 0;
  }

  Status decode_nested(std::uint32_t chunk, std::uint32_t partner, std::span<const std::byte> bytes,
                       Executor& executor);
  Status decode_packed(const ChunkInfo& chunk, std::span<const std::byte> bytes, Executor& executor);
  Status decode_full(const ChunkInfo& chunk, std::span<const std::byte> bytes, Executor& executor);
  void copy_slabs(const ChunkInfo& chunk, std::span<const std::byte> bytes, std::uint32_t first, std::uint32_t end);
  void copy_shifted(const ChunkInfo& chunk, std::span<const std::byte> bytes, std::uint32_t layer, std::uint32_t head);
  std::span<std::byte> page_of(std::size_t slab, std::uint32_t layer, std::uint32_t head) const;
  void scatter_stored_page(const std::byte* from, std::span<const std::span<std::byte>> to, std::uint32_t slot,
                           std::uint32_t tokens) const;
  // `unverified` is the chunk as it came; none where its checksum was verified before.
  Status decode_sections(const ChunkInfo& chunk, const Codes<const std::byte>& bytes,
                         std::span<const std::byte> unverified, Executor& executor);
  // `index` is the head's number.
  void decode_piece(std::uint32_t stratum, std::uint32_t index, const Codes<const std::byte>& codes,
                    std::span<const PageId> to, std::uint32_t first, std::uint32_t end);
  void slide(std::span<const PageId> run, std::uint32_t first, std::uint32_t end);
};

namespace {

// Runs work(0) … work(count - 1) beside the check of the checksum, if there are bytes to check. What is decoded of
// damaged bytes is nonsense that nobody sees: the caller drops the sequence.
Status verified(const ChunkInfo& chunk, std::span<const std::byte> bytes, Executor& executor, std::size_t count,
                const std::function<void(std::size_t)>& work) {
  bool sound = bytes.empty();
  executor.parallel_for(count + 1, [&](std::size_t i) {
    if (i == 0) {
      sound = sound || hash128(bytes) == chunk.checksum;
    } else {
      work(i - 1);
    }
  });
  if (sound) return {};
  return fail(ErrorCode::kCorrupt, "stratum {}, layers {} to {} of a stored object: the checksum is wrong",
              chunk.stratum, chunk.first_layer, chunk.end_layer);
}

}  // namespace

Status ObjectDecoder::State::decode_full(const ChunkInfo& chunk, std::span<const std::byte> bytes, Executor& executor) {
  if (shift == 0) {
    const auto count = static_cast<std::uint32_t>(slabs.size());
    const std::uint32_t pieces = std::min<std::uint32_t>(count, 4 * static_cast<std::uint32_t>(executor.threads()));
    return verified(chunk, bytes, executor, pieces, [&](std::size_t i) {
      copy_slabs(chunk, bytes, static_cast<std::uint32_t>(count * i / pieces),
                 static_cast<std::uint32_t>(count * (i + 1) / pieces));
    });
  }
  const std::uint32_t heads = (chunk.end_layer - chunk.first_layer) * shape().kv_heads;
  return verified(chunk, bytes, executor, heads, [&](std::size_t i) {
    const auto index = static_cast<std::uint32_t>(i);
    copy_shifted(chunk, bytes, chunk.first_layer + index / shape().kv_heads, index % shape().kv_heads);
  });
}

std::span<std::byte> ObjectDecoder::State::page_of(std::size_t slab, std::uint32_t layer, std::uint32_t head) const {
  PagePool& pool = sequence->pool();
  return pool.host_view().writable_bytes(pool.page_of(slabs[slab], shape().page_index(layer, head)));
}

// Slabs [first, end) of the entry, each page of the group's layers as it is. Slots beyond the entry's last token are
// left alone: later tokens may be there already.
void ObjectDecoder::State::copy_slabs(const ChunkInfo& chunk, std::span<const std::byte> bytes, std::uint32_t first,
                                      std::uint32_t end) {
  const std::uint32_t page_tokens = shape().page_tokens;
  const std::size_t page_bytes = shape().page_bytes();
  const std::byte* from = bytes.data() + first * (bytes.size() / shape().pages_for(layout.tokens()));
  for (std::uint32_t slab = first; slab < end; ++slab) {
    const std::uint32_t tokens = std::min(page_tokens, logical_tokens - slab * page_tokens);
    for (std::uint32_t layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
      for (std::uint32_t head = 0; head < shape().kv_heads; ++head, from += page_bytes) {
        const std::span<std::byte> to = page_of(slab, layer, head);
        if (tokens == page_tokens) {
          stream_rows(reinterpret_cast<const Half*>(from), 0, reinterpret_cast<Half*>(to.data()), 0, 1,
                      page_bytes / sizeof(Half));
        } else {
          scatter_stored_page(from, {&to, 1}, 0, tokens);
        }
      }
    }
  }
  flush_stream();
}

// The sequence's last page was not full, so tokens land in other slots than they were stored in.
void ObjectDecoder::State::copy_shifted(const ChunkInfo& chunk, std::span<const std::byte> bytes, std::uint32_t layer,
                                        std::uint32_t head) {
  const std::uint32_t page_tokens = shape().page_tokens;
  const std::size_t stride = bytes.size() / shape().pages_for(layout.tokens());
  std::vector<std::span<std::byte>> to;
  for (std::size_t slab = 0; slab < slabs.size(); ++slab) to.push_back(page_of(slab, layer, head));
  const std::byte* from = bytes.data() + shape().page_index(layer - chunk.first_layer, head) * shape().page_bytes();
  for (std::uint32_t first = 0; first < logical_tokens; first += page_tokens, from += stride) {
    scatter_stored_page(from, to, shift + first, std::min(page_tokens, logical_tokens - first));
  }
  flush_stream();
}

// The first `tokens` of a stored page, which may lie at any address, into slots from `slot` on.
void ObjectDecoder::State::scatter_stored_page(const std::byte* from, std::span<const std::span<std::byte>> to,
                                               std::uint32_t slot, std::uint32_t tokens) const {
  AlignedBuffer page(shape().page_bytes());
  std::memcpy(page.data(), from, page.size());
  if (shape().element == PageElement::kHalf) {
    return scatter_tokens(rows_of(PageView::of(page.data(), shape()), shape()), 0, to, shape(), slot, tokens);
  }
  const std::span<const std::byte> stored = page.bytes();
  copy_run(shape(), {&stored, 1}, 0, to, slot, tokens);
}

std::optional<std::uint32_t> ObjectDecoder::State::partner(std::uint32_t chunk) const {
  for (const std::uint32_t other : wanted) {
    if (chunks[other].stratum == chunks[chunk].stratum && chunks[other].first_layer == chunks[chunk].first_layer &&
        chunks[other].plane != chunks[chunk].plane) {
      return other;
    }
  }
  return std::nullopt;
}

Status ObjectDecoder::State::decode_nested(std::uint32_t chunk, std::uint32_t partner, std::span<const std::byte> bytes,
                                           Executor& executor) {
  if (waiting[partner].size() == 0) {
    waiting[chunk] = AlignedBuffer(bytes.size());
    return verified(chunks[chunk], bytes, executor, 1,
                    [&](std::size_t) { std::memcpy(waiting[chunk].data(), bytes.data(), bytes.size()); });
  }
  const AlignedBuffer other = std::move(waiting[partner]);
  const bool is_base = chunks[chunk].plane == kBasePlane;
  const Codes<const std::byte> both{is_base ? bytes : other.bytes(), is_base ? other.bytes() : bytes};
  return decode_sections(chunks[chunk], both, bytes, executor);
}

Status ObjectDecoder::State::decode_packed(const ChunkInfo& chunk, std::span<const std::byte> bytes,
                                           Executor& executor) {
  SHALE_TRY(verified(chunk, bytes, executor, 0, {}));
  SHALE_ASSIGN(const AlignedBuffer unpacked,
               unpack_chunk(layout.quantizer(chunk.stratum), shape().head_dim, layout.bitmap_bytes(),
                            layout.sections(chunk), bytes, executor));
  return decode_sections(chunk, {unpacked.bytes()}, {}, executor);
}

Status ObjectDecoder::State::decode_sections(const ChunkInfo& chunk, const Codes<const std::byte>& bytes,
                                             std::span<const std::byte> unverified, Executor& executor) {
  const std::uint32_t pieces = pieces_of(layout.stratum_tokens_max(chunk.stratum));
  const std::uint32_t sections = (chunk.end_layer - chunk.first_layer) * shape().kv_heads;
  const std::uint32_t first_page = shape().page_index(chunk.first_layer, 0);
  const auto tokens_of = [&](std::uint32_t i) { return layout.stratum_tokens(chunk.stratum, first_page + i); };
  const auto section = [&](std::uint32_t plane, std::span<const std::byte> of, std::uint32_t i) {
    const auto [offset, size] = layout.section(chunk.stratum, plane, chunk.first_layer, first_page + i);
    return of.subspan(offset, size);
  };
  Sequence::Stratum& stratum = pages[chunk.stratum];
  // Positions ascend, so the tokens below a hit's end are the first of each section, and those out of sight the first
  // of these.
  std::vector<std::uint32_t> kept(sections, std::min(layout.tokens(), logical_tokens)), skipped(sections);
  if (layout.ranked()) {
    for (std::uint32_t i = 0; i < sections; ++i) {
      const auto bitmap = section(kBasePlane, bytes.base, i).first(layout.bitmap_bytes());
      const auto below = [&](std::uint32_t end) { return tokens_below(bitmap, layout.tokens(), tokens_of(i), end); };
      const auto end = below(logical_tokens);
      if (!end) return fail(ErrorCode::kCorrupt, "a chunk of a stored object has impossible token positions");
      kept[i] = *end;
      skipped[i] = *below(hidden(chunk.first_layer + i / shape().kv_heads));
    }
  }
  SHALE_TRY(verified(chunk, unverified, executor, std::size_t{sections} * pieces, [&](std::size_t i) {
    const auto number = static_cast<std::uint32_t>(i / pieces), index = first_page + number;
    const auto first = static_cast<std::uint32_t>(i % pieces) * kPieceTokens;
    Codes<const std::byte> codes{section(kBasePlane, bytes.base, number).subspan(layout.bitmap_bytes()), {}};
    if (!bytes.refinement.empty()) codes.refinement = section(kRefinementPlane, bytes.refinement, number);
    const std::uint32_t end = std::min(first + kPieceTokens, kept[number]);
    if (end > std::max(first, skipped[number])) {
      decode_piece(chunk.stratum, index, codes, stratum.pages[index], first, end);
    }
  }));
  for (std::uint32_t i = 0; i < sections; ++i) {
    if ((kept[i] == tokens_of(i) && skipped[i] == 0) || !layout.ranked()) continue;
    if (skipped[i] > 0) slide(stratum.pages[first_page + i], skipped[i], kept[i]);
    sequence->shrink_stratum(stratum, chunk.first_layer + i / shape().kv_heads, i % shape().kv_heads,
                             kept[i] - skipped[i]);
  }
  return {};
}

// Moves tokens [first, end) to the front of a run of pages.
void ObjectDecoder::State::slide(std::span<const PageId> run, std::uint32_t first, std::uint32_t end) {
  std::vector<std::span<const std::byte>> from;
  std::vector<std::span<std::byte>> to;
  const WritableHostView view = sequence->pool().host_view();
  for (const PageId page : run) {
    to.push_back(view.writable_bytes(page));
    from.push_back(to.back());
  }
  copy_run(shape(), from, first, to, 0, end - first);
}

// Tokens [first, end) of a section.
void ObjectDecoder::State::decode_piece(std::uint32_t stratum, std::uint32_t index, const Codes<const std::byte>& codes,
                                        std::span<const PageId> to, std::uint32_t first, std::uint32_t end) {
  std::vector<std::span<std::byte>> pages_to;
  const WritableHostView view = sequence->pool().host_view();
  for (std::uint32_t token = first; token < end; token += shape().page_tokens) {
    pages_to.push_back(view.writable_bytes(to[token / shape().page_tokens]));
  }
  decode_tokens(layout.quantizer(stratum).of_head(index), codes, layout.stratum_tokens(stratum, index), first, end,
                pages_to, shape());
}

ObjectDecoder::ObjectDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ObjectDecoder::~ObjectDecoder() = default;
ObjectDecoder::ObjectDecoder(ObjectDecoder&&) noexcept = default;
ObjectDecoder& ObjectDecoder::operator=(ObjectDecoder&&) noexcept = default;

Result<ObjectDecoder> ObjectDecoder::start(const Manifest& manifest, double keep, std::uint32_t logical_tokens,
                                           Sequence& sequence, Bits bits, std::span<const std::uint32_t> windows,
                                           const CachegenTables* tables) {
  const auto tokens = static_cast<std::uint32_t>(manifest.tokens.size());
  if (manifest.shape != sequence.pool().shape()) {
    return fail(ErrorCode::kMismatch, "a stored object of another model or page size cannot be loaded into this pool");
  }
  if (!(keep > 0 && keep <= 1) || logical_tokens == 0 || logical_tokens > tokens) {
    return fail(ErrorCode::kInvalidArgument, "keep {} of {} tokens of an entry of {} cannot be loaded", keep,
                logical_tokens, tokens);
  }
  SHALE_ASSIGN(ObjectLayout layout,
               ObjectLayout::make(manifest.shape, manifest.method, tokens, tables, manifest.head_strata));
  const std::uint32_t strata = manifest.strata_for(keep);
  std::vector<Sequence::Stratum> pages;
  std::vector<SlabId> slabs;
  std::uint32_t shift = 0;
  if (layout.full()) {
    SHALE_TRY(sequence.append(logical_tokens));
    shift = sequence.appended(0, 0, 0, logical_tokens).slot;
    for (std::uint32_t token = 0; token < logical_tokens;
         token += manifest.shape.page_tokens - (token == 0 ? shift : 0)) {
      slabs.push_back(sequence.pool().slab_of(sequence.appended(0, 0, token, logical_tokens).page));
    }
  } else {
    // What each stratum holds below `logical_tokens` is known once it is decoded; plain objects keep all of it.
    std::vector<std::vector<std::uint32_t>> kept(strata);  // of each head
    std::size_t needed = 0;
    for (std::uint32_t s = 0; s < strata; ++s) {
      for (std::uint32_t i = 0; i < manifest.shape.pages_per_slab(); ++i) {
        kept[s].push_back(layout.ranked() ? layout.stratum_tokens(s, i) : logical_tokens);
        needed += manifest.shape.pages_for(kept[s].back());
      }
    }
    if (sequence.pool().pages_free() < needed) {
      return fail(ErrorCode::kFull, "a stored object needs {} pages of the page pool, {} are free", needed,
                  sequence.pool().pages_free());
    }
    for (const std::vector<std::uint32_t>& of_heads : kept) {
      SHALE_ASSIGN(Sequence::Stratum stratum, sequence.append_stratum(of_heads));
      pages.push_back(std::move(stratum));
    }
    sequence.advance(logical_tokens, true);
  }
  return ObjectDecoder(std::make_unique<State>(State{.layout = std::move(layout),
                                                     .chunks = manifest.chunks,
                                                     .wanted = manifest.chunks_for(strata, bits),
                                                     .strata = strata,
                                                     .logical_tokens = logical_tokens,
                                                     .windows = {windows.begin(), windows.end()},
                                                     .sequence = &sequence,
                                                     .pages = std::move(pages),
                                                     .slabs = std::move(slabs),
                                                     .shift = shift,
                                                     .taken = std::vector<bool>(manifest.chunks.size()),
                                                     .waiting = std::vector<AlignedBuffer>(manifest.chunks.size())}));
}

std::uint32_t ObjectDecoder::strata() const { return state_->strata; }
const std::vector<std::uint32_t>& ObjectDecoder::chunks() const { return state_->wanted; }

Status ObjectDecoder::decode(std::uint32_t chunk, std::span<const std::byte> bytes, Executor& executor) {
  State& s = *state_;
  if (!std::ranges::binary_search(s.wanted, chunk) || s.taken[chunk]) {
    return fail(ErrorCode::kInvalidArgument, "chunk {} is not one of the {} wanted, or was decoded before", chunk,
                s.wanted.size());
  }
  s.taken[chunk] = true;
  const ChunkInfo& info = s.chunks[chunk];
  if (bytes.size() != info.bytes) {
    return fail(ErrorCode::kCorrupt, "a chunk of a stored object has {} bytes instead of {}", bytes.size(), info.bytes);
  }
  if (s.layout.full()) return s.decode_full(info, bytes, executor);
  if (s.layout.packed(info.stratum)) return s.decode_packed(info, bytes, executor);
  if (const auto partner = s.partner(chunk)) return s.decode_nested(chunk, *partner, bytes, executor);
  return s.decode_sections(info, {bytes}, bytes, executor);
}

}  // namespace shale
