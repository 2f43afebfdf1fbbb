// What a view refuses, how ready-made ones lie, and copies between layouts, against copies element by element.
#include "codec/views/kv_view.h"

#include <gtest/gtest.h>

#include "codec/extent_fixture.h"
#include "codec/views/strided_copy.h"

namespace shale {
namespace {

ErrorCode code_of(const Status& status) { return status ? ErrorCode::kInternal : status.error().code; }

TEST(KvGeometry, RefusesWhatNoModelHas) {
  const auto code = [](const auto& change) {
    KvGeometry geometry = kGeometry;
    change(geometry);
    return code_of(geometry.check());
  };
  EXPECT_TRUE(kGeometry.check());
  EXPECT_EQ(code([](KvGeometry& g) { g.layers = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.layers = 1025; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.kv_heads = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.head_dim = 5000; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.block_tokens = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.opaque_bytes = {64, 0}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.element = KvElement::kOpaque; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g.element = static_cast<KvElement>(7); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](KvGeometry& g) { g = {.element = KvElement::kOpaque, .layers = 1, .opaque_bytes = {0, 8}}; }),
            ErrorCode::kInvalidArgument);
}

class View : public ::testing::TestWithParam<Layout> {
 protected:
  // Changes a view that may be written to, and one that may not.
  template <class Change>
  ErrorCode code(const Change& change) const {
    OwnedView owned = make_view(kGeometry, GetParam(), 100, 1);
    change(owned.view);
    EXPECT_EQ(owned.view.check().has_value(), owned.readable().check().has_value());
    return code_of(owned.view.check());
  }
};

TEST_P(View, RefusesWhatCannotBe) {
  EXPECT_EQ(code([](MutableKvView&) {}), ErrorCode::kInternal) << "sound";
  EXPECT_EQ(code([](MutableKvView& v) { v.tokens = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](MutableKvView& v) { v.tokens = ~0u; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](MutableKvView& v) { v.tokens = 100 + 4 * 16; }), ErrorCode::kInvalidArgument) << "no such blocks";
  EXPECT_EQ(code([](MutableKvView& v) { v.keys.layers.pop_back(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](MutableKvView& v) { v.values.layers[1] = nullptr; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](MutableKvView& v) { v.keys.layers[0] += 1; }), ErrorCode::kInvalidArgument) << "half an element";
  for (auto stride : {&KvArray<std::byte>::block_stride, &KvArray<std::byte>::token_stride,
                      &KvArray<std::byte>::head_stride, &KvArray<std::byte>::channel_stride}) {
    EXPECT_EQ(code([&](MutableKvView& v) { v.keys.*stride = 0; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&](MutableKvView& v) { v.values.*stride *= -1; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&](MutableKvView& v) { v.keys.*stride += 1; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&](MutableKvView& v) { v.keys.*stride = std::int64_t{1} << 62; }), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(code([](MutableKvView& v) { v.keys.block_stride = v.keys.token_stride; }), ErrorCode::kInvalidArgument)
      << "overlap";
}

TEST_P(View, ReadsABlockTwiceButDoesNotWriteItTwice) {
  OwnedView owned = make_view(kGeometry, GetParam(), 48, 1);
  owned.view.block_table = {0, 1, 0};
  EXPECT_TRUE(owned.readable().check());
  EXPECT_EQ(code_of(owned.view.check()), ErrorCode::kInvalidArgument);
  owned.view.block_table = {0, 1, owned.view.physical_blocks};
  EXPECT_EQ(code_of(owned.readable().check()), ErrorCode::kInvalidArgument);
}

TEST_P(View, HasParts) {
  const OwnedView owned = make_view(kGeometry, GetParam(), 100, 1);
  const MutableKvView part = owned.view.part(32, 60);
  EXPECT_TRUE(part.check());
  EXPECT_TRUE(same_tokens(owned.view, 32, 60, part));
}

INSTANTIATE_TEST_SUITE_P(Layouts, View, ::testing::ValuesIn(kLayouts));

TEST(View, ReadyMadeOnesLieAsTheySay) {
  AlignedBuffer memory(kGeometry.bytes(64));
  const MutableKvView pages = packed_view(kGeometry, KvPacking::kHeadPages, memory.data(), 64);
  const MutableKvView tokens = packed_view(kGeometry, KvPacking::kTokensHeads, memory.data(), 64);
  const MutableKvView heads = packed_view(kGeometry, KvPacking::kHeadsTokens, memory.data(), 64);
  const MutableKvView plain = plain_view(kGeometry, memory.data(), memory.data() + memory.size() / 2, 64);
  const auto offset = [&](const MutableKvView& view, bool values) {
    EXPECT_TRUE(view.check());
    return element_at(view, values ? view.values : view.keys, 2, 35, 1, 7) - memory.data();
  };
  // Layer 2 of 3, block 2 of 4, slot 3 of 16, head 1 of 2, channel 7 of 32; two bytes each.
  const std::ptrdiff_t block = (2 * 4 + 2) * 2 * 1024, keys = 1024;
  EXPECT_EQ(offset(pages, false), 2 * (block + keys + 7 * 16 + 3));
  EXPECT_EQ(offset(pages, true), 2 * (block + keys + 512 + 3 * 32 + 7));
  EXPECT_EQ(offset(tokens, false), 2 * (block + (3 * 2 + 1) * 32 + 7));
  EXPECT_EQ(offset(tokens, true), 2 * (block + keys + (3 * 2 + 1) * 32 + 7));
  EXPECT_EQ(offset(heads, false), 2 * (block + (1 * 16 + 3) * 32 + 7));
  EXPECT_EQ(offset(heads, true), 2 * (block + keys + (1 * 16 + 3) * 32 + 7));
  EXPECT_EQ(offset(plain, false), 2 * (((2 * 2 + 1) * 64 + 35) * 32 + 7));
  EXPECT_EQ(offset(plain, true),
            static_cast<std::ptrdiff_t>(memory.size() / 2) + 2 * (((2 * 2 + 1) * 64 + 35) * 32 + 7));
}

// Three dimensions in any order on either side, of sizes that vectors do not divide.
TEST(StridedCopy, PutsEveryElementInItsPlace) {
  struct Sizes {
    std::size_t a, b, c;
  };
  const std::array<std::array<int, 3>, 6> orders = {{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};
  for (const std::size_t element : {std::size_t{2}, std::size_t{4}}) {
    for (const Sizes& sizes :
         std::vector<Sizes>{{1, 1, 1}, {3, 5, 7}, {2, 16, 8}, {4, 33, 17}, {1, 16, 128}, {9, 1, 24}}) {
      const std::array<std::size_t, 3> extents = {sizes.a, sizes.b, sizes.c};
      const std::size_t count = sizes.a * sizes.b * sizes.c;
      const auto strides = [&](const std::array<int, 3>& order) {  // the last of the order is contiguous
        std::array<std::int64_t, 3> result{};
        auto stride = static_cast<std::int64_t>(element);
        for (int i = 2; i >= 0; --i) {
          result[order[i]] = stride;
          stride *= static_cast<std::int64_t>(extents[order[i]]);
        }
        return result;
      };
      AlignedBuffer from(count * element), to(count * element);
      for (std::size_t i = 0; i < from.size(); ++i) from.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
      for (const auto& from_order : orders) {
        for (const auto& to_order : orders) {
          for (const CopyTo kind : {CopyTo::kCache, CopyTo::kMemory}) {
            const auto from_strides = strides(from_order), to_strides = strides(to_order);
            std::array<CopyDimension, 3> dimensions;
            for (int i = 0; i < 3; ++i) dimensions[i] = {extents[i], from_strides[i], to_strides[i]};
            std::memset(to.data(), 0, to.size());
            StridedCopy(dimensions, element, kind).run(from.data(), to.data());
            for (std::size_t i = 0; i < count; ++i) {
              const std::array<std::size_t, 3> at = {i / (sizes.b * sizes.c), i / sizes.c % sizes.b, i % sizes.c};
              std::int64_t source = 0, sink = 0;
              for (int d = 0; d < 3; ++d) {
                source += static_cast<std::int64_t>(at[d]) * from_strides[d];
                sink += static_cast<std::int64_t>(at[d]) * to_strides[d];
              }
              ASSERT_EQ(std::memcmp(from.data() + source, to.data() + sink, element), 0);
            }
          }
        }
      }
    }
  }
}

TEST(Elements, AreRoundedToHalvesAndBack) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> numbers = {0,     -0.0f,  1,     -2.5f,    65504,    65520,     1e9f,          -1e9f,
                                      1e-8f, -1e-5f, 6e-8f, 3.14159f, infinity, -infinity, std::nanf(""), 0.1f};
  std::vector<Half> halves(16);
  std::vector<float> back(16);
  halves_of_f32(numbers, halves.data());
  f32_of_halves(halves, back.data());
  std::vector<std::uint16_t> bf16(16);
  bf16_of_halves(halves, bf16.data());
  for (std::size_t i = 0; i < 16; ++i) {
    if (std::isnan(numbers[i])) {
      EXPECT_TRUE(std::isnan(back[i]) &&
                  std::isnan(read_element(KvElement::kBf16, reinterpret_cast<std::byte*>(&bf16[i]))));
      continue;
    }
    EXPECT_EQ(halves[i], to_half(std::clamp(numbers[i], -65504.0f, 65504.0f))) << numbers[i];
    EXPECT_EQ(back[i], to_float(halves[i]));
    const float coarse = read_element(KvElement::kBf16, reinterpret_cast<std::byte*>(&bf16[i]));
    EXPECT_LE(std::abs(coarse - back[i]), std::abs(back[i]) * 0x1p-9f) << "to nearest";
  }
  const std::vector<std::uint16_t> wide = {0x3f80, 0xbf80, 0x7f00, 0xff00, 0x7f80, 0x0001, 0x8000, 0x4049,
                                           0x3f80, 0xbf80, 0x7f00, 0xff00, 0x7f80, 0x0001, 0x8000, 0x4049};
  halves_of_bf16(wide, halves.data());
  for (std::size_t i = 0; i < 16; ++i) {
    const float value = std::bit_cast<float>(std::uint32_t{wide[i]} << 16);
    EXPECT_EQ(halves[i], to_half(std::clamp(value, -65504.0f, 65504.0f))) << value;
  }
}

}  // namespace
}  // namespace shale
