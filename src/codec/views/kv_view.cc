#include "codec/views/kv_view.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace shale {
namespace {

constexpr std::uint32_t kLayersMax = 1 << 10, kHeadsMax = 1 << 10, kHeadDimMax = 1 << 12, kBlockTokensMax = 1 << 12;
constexpr std::uint32_t kOpaqueBytesMax = 1 << 30, kTokensMax = 1 << 26;
// The largest offset within an array: far beyond any memory, and no sum of four overflows.
constexpr std::uint64_t kOffsetMax = std::uint64_t{1} << 60;

bool within(std::uint32_t value, std::uint32_t most) { return value >= 1 && value <= most; }

struct Dimension {
  std::string_view name;
  std::uint64_t extent;
  std::int64_t stride;
};

// From the smallest stride to the largest, each dimension begins where the one before it ends, or later.
Status check_strides(std::string_view array, std::vector<Dimension> dimensions, std::uint64_t element_bytes,
                     std::uint64_t alignment) {
  std::erase_if(dimensions, [](const Dimension& each) { return each.extent <= 1; });
  std::ranges::sort(dimensions, {}, &Dimension::stride);
  std::uint64_t end = element_bytes;
  for (const Dimension& each : dimensions) {
    const auto stride = static_cast<std::uint64_t>(each.stride);
    if (each.stride < 0 || stride < end || stride % alignment != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "the {} stride of a view's {} is {} bytes; it must be a multiple of {} and at least the {} that lie "
                  "between",
                  each.name, array, each.stride, alignment, end);
    }
    if (stride > kOffsetMax / each.extent) {
      return fail(ErrorCode::kInvalidArgument, "the {} stride of a view's {}, {} bytes, is beyond any memory",
                  each.name, array, each.stride);
    }
    end = stride * (each.extent - 1) + end;
  }
  return {};
}

template <class Byte>
Status check_array(const BasicKvView<Byte>& view, std::string_view name, const KvArray<Byte>& array,
                   std::uint64_t block_bytes, std::uint64_t blocks) {
  const KvGeometry& geometry = view.geometry;
  if (array.layers.size() != geometry.layers || std::ranges::count(array.layers, nullptr) > 0) {
    return fail(ErrorCode::kInvalidArgument,
                "a view of {} layers needs as many base pointers of {}; {} were given, "
                "and none may be null",
                geometry.layers, name, array.layers.size());
  }
  if (geometry.opaque()) return check_strides(name, {{"block", blocks, array.block_stride}}, block_bytes, 1);
  const std::size_t element = geometry.element_bytes();
  for (const Byte* base : array.layers) {
    if (reinterpret_cast<std::uintptr_t>(base) % element != 0) {
      return fail(ErrorCode::kInvalidArgument, "a base pointer of a view's {} is no multiple of an element's {} bytes",
                  name, element);
    }
  }
  return check_strides(name,
                       {{"block", blocks, array.block_stride},
                        {"token", geometry.block_tokens, array.token_stride},
                        {"head", geometry.kv_heads, array.head_stride},
                        {"channel", geometry.head_dim, array.channel_stride}},
                       element, element);
}

// The block table's largest entry, and one more.
template <class Byte>
Result<std::uint64_t> check_table(const BasicKvView<Byte>& view) {
  const std::uint32_t blocks = view.blocks();
  if (!view.block_table.empty() && view.block_table.size() < blocks) {
    return fail(ErrorCode::kInvalidArgument, "{} tokens take {} blocks of {}; the block table has {}", view.tokens,
                blocks, view.geometry.block_tokens, view.block_table.size());
  }
  const auto used = std::span(view.block_table).first(view.block_table.empty() ? 0 : blocks);
  const std::uint64_t end = used.empty() ? blocks : std::uint64_t{std::ranges::max(used)} + 1;
  if (view.physical_blocks != 0 && end > view.physical_blocks) {
    return fail(ErrorCode::kInvalidArgument, "a view names physical block {}; its arrays hold {}", end - 1,
                view.physical_blocks);
  }
  if constexpr (!std::is_const_v<Byte>) {
    std::vector<std::uint32_t> sorted(used.begin(), used.end());
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
      return fail(ErrorCode::kInvalidArgument, "the block table of a view that is written to names block {} twice",
                  *twice);
    }
  }
  return end;
}

}  // namespace

std::string_view name_of(KvElement element) {
  switch (element) {
    case KvElement::kF16:
      return "fp16";
    case KvElement::kBf16:
      return "bf16";
    case KvElement::kF32:
      return "fp32";
    case KvElement::kOpaque:
      return "opaque";
  }
  return "unknown";
}

std::size_t KvGeometry::element_bytes() const {
  if (opaque()) return 1;
  return element == KvElement::kF32 ? 4 : 2;
}

std::size_t KvGeometry::key_bytes() const {
  return opaque() ? opaque_bytes[0] : element_bytes() * kv_heads * head_dim * block_tokens;
}

std::size_t KvGeometry::value_bytes() const { return opaque() ? opaque_bytes[1] : key_bytes(); }

Status KvGeometry::check() const {
  if (element > KvElement::kOpaque) {
    return fail(ErrorCode::kInvalidArgument, "element {} of keys and values is not known", static_cast<int>(element));
  }
  if (!within(layers, kLayersMax) || !within(block_tokens, kBlockTokensMax)) {
    return fail(ErrorCode::kInvalidArgument, "{} layers and blocks of {} tokens: there must be 1 to {} and 1 to {}",
                layers, block_tokens, kLayersMax, kBlockTokensMax);
  }
  if (opaque()) {
    if (within(opaque_bytes[0], kOpaqueBytesMax) && opaque_bytes[1] <= kOpaqueBytesMax && kv_heads == 0 &&
        head_dim == 0) {
      return {};
    }
    return fail(ErrorCode::kInvalidArgument,
                "opaque blocks of {} and {} bytes, {} heads and {} channels: the first must be 1 to {}, the second at "
                "most that, and heads and channels 0",
                opaque_bytes[0], opaque_bytes[1], kv_heads, head_dim, kOpaqueBytesMax);
  }
  if (!within(kv_heads, kHeadsMax) || !within(head_dim, kHeadDimMax) || opaque_bytes != decltype(opaque_bytes){}) {
    return fail(ErrorCode::kInvalidArgument,
                "{} KV heads of {} channels: there must be 1 to {} and 1 to {}, and no opaque bytes", kv_heads,
                head_dim, kHeadsMax, kHeadDimMax);
  }
  return {};
}

template <class Byte>
BasicKvView<Byte> BasicKvView<Byte>::part(std::uint32_t first, std::uint32_t count) const {
  BasicKvView part = *this;
  part.tokens = count;
  const std::uint32_t first_block = first / geometry.block_tokens;
  part.block_table.clear();
  for (std::uint32_t i = 0; i < part.blocks(); ++i) {
    part.block_table.push_back(static_cast<std::uint32_t>(physical(first_block + i)));
  }
  return part;
}

template <class Byte>
Status BasicKvView<Byte>::check() const {
  SHALE_TRY(geometry.check());
  if (!within(tokens, kTokensMax)) {
    return fail(ErrorCode::kInvalidArgument, "a view of {} tokens; there must be 1 to {}", tokens, kTokensMax);
  }
  SHALE_ASSIGN(const std::uint64_t blocks, check_table(*this));
  SHALE_TRY(check_array(*this, "keys", keys, geometry.key_bytes(), blocks));
  if (geometry.value_bytes() > 0) return check_array(*this, "values", values, geometry.value_bytes(), blocks);
  if (values.layers.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, "a view of opaque blocks in one array has no values");
}

KvView readable(const MutableKvView& view) {
  const auto array = [](const KvArray<std::byte>& from) {
    return KvArray<const std::byte>{{from.layers.begin(), from.layers.end()},
                                    from.block_stride,
                                    from.token_stride,
                                    from.head_stride,
                                    from.channel_stride};
  };
  return {view.geometry, array(view.keys), array(view.values), view.block_table, view.physical_blocks, view.tokens};
}

template <class Byte>
BasicKvView<Byte> packed_view(const KvGeometry& geometry, KvPacking packing, Byte* base, std::uint32_t tokens) {
  BasicKvView<Byte> view{.geometry = geometry, .keys = {}, .values = {}, .block_table = {}, .tokens = tokens};
  view.physical_blocks = view.blocks();
  const auto element = static_cast<std::int64_t>(geometry.element_bytes());
  const std::int64_t heads = geometry.kv_heads, channels = geometry.head_dim, slots = geometry.block_tokens;
  view.keys.block_stride = view.values.block_stride = static_cast<std::int64_t>(geometry.block_bytes());
  const auto strides = [&](KvArray<Byte>& array, std::int64_t token, std::int64_t head, std::int64_t channel) {
    array.token_stride = token * element;
    array.head_stride = head * element;
    array.channel_stride = channel * element;
  };
  std::size_t values_after = geometry.key_bytes();
  switch (packing) {
    case KvPacking::kHeadPages:
      strides(view.keys, 1, 2 * channels * slots, slots);
      strides(view.values, channels, 2 * channels * slots, 1);
      if (!geometry.opaque()) values_after = static_cast<std::size_t>(channels * slots * element);
      break;
    case KvPacking::kTokensHeads:
      strides(view.keys, heads * channels, channels, 1);
      strides(view.values, heads * channels, channels, 1);
      break;
    case KvPacking::kHeadsTokens:
      strides(view.keys, channels, slots * channels, 1);
      strides(view.values, channels, slots * channels, 1);
      break;
  }
  for (std::uint32_t layer = 0; layer < geometry.layers; ++layer, base += geometry.block_bytes() * view.blocks()) {
    view.keys.layers.push_back(base);
    if (geometry.value_bytes() > 0) view.values.layers.push_back(base + values_after);
  }
  return view;
}

template <class Byte>
BasicKvView<Byte> plain_view(const KvGeometry& geometry, Byte* keys, Byte* values, std::uint32_t tokens) {
  BasicKvView<Byte> view{.geometry = geometry, .keys = {}, .values = {}, .block_table = {}, .tokens = tokens};
  view.physical_blocks = view.blocks();
  const auto element = static_cast<std::int64_t>(geometry.element_bytes());
  const std::size_t layer_bytes = geometry.key_bytes() * view.blocks();
  const auto fill = [&](KvArray<Byte>& array, Byte* base) {
    array.channel_stride = element;
    array.token_stride = element * geometry.head_dim;
    array.block_stride = array.token_stride * geometry.block_tokens;
    array.head_stride = array.token_stride * tokens;
    for (std::uint32_t layer = 0; layer < geometry.layers; ++layer) array.layers.push_back(base + layer * layer_bytes);
  };
  fill(view.keys, keys);
  fill(view.values, values);
  return view;
}

template struct BasicKvView<const std::byte>;
template struct BasicKvView<std::byte>;
template KvView packed_view(const KvGeometry&, KvPacking, const std::byte*, std::uint32_t);
template MutableKvView packed_view(const KvGeometry&, KvPacking, std::byte*, std::uint32_t);
template KvView plain_view(const KvGeometry&, const std::byte*, const std::byte*, std::uint32_t);
template MutableKvView plain_view(const KvGeometry&, std::byte*, std::byte*, std::uint32_t);

}  // namespace shale
