#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "model/attention_scene.h"

namespace shale {
namespace {

using testing::relative_rms;
using testing::Scene;

constexpr double kTolerance = 2e-6;

// Every instruction set that this machine runs, over pages of either element.
class Attention : public ::testing::TestWithParam<std::tuple<std::int64_t, PageElement>> {
 protected:
  static PageElement element() { return std::get<1>(GetParam()); }
  void SetUp() override {
    const auto target = std::get<0>(GetParam());
    hwy::SetSupportedTargetsForTest(target);
    ASSERT_STREQ(attention_target(), hwy::TargetName(target));
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> each;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1)
    each.push_back(left & -left);
  return each;
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<std::int64_t, PageElement>>& each) {
  const bool int8 = std::get<1>(each.param) == PageElement::kInt8;
  return std::string(hwy::TargetName(std::get<0>(each.param))) + (int8 ? "_int8" : "");
}

INSTANTIATE_TEST_SUITE_P(Targets, Attention,
                         ::testing::Combine(::testing::ValuesIn(targets()),
                                            ::testing::Values(PageElement::kHalf, PageElement::kInt8)),
                         name_of_case);

TEST_P(Attention, DecodesEveryGrouping) {
  for (const std::uint32_t group : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u}) {
    Scene scene(2 * group, 2, 64, 16, element());
    scene.add_full(333, 1);
    EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << "group " << group;
  }
}

TEST_P(Attention, DecodesEveryHeadDimensionPageAndLength) {
  for (const std::uint32_t head_dim : {8u, 32u, 64u, 72u, 80u, 128u, 256u}) {
    for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
      Scene scene(6, 2, head_dim, block_size, element());
      for (const std::uint32_t tokens : {1u, 7u, 16u, 65u, 250u}) scene.add_full(tokens, 1);
      EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << head_dim << " / " << block_size;
    }
  }
}

TEST_P(Attention, PrefillsEveryHeadDimensionPageAndLength) {
  for (const std::uint32_t head_dim : {8u, 32u, 64u, 72u, 80u, 128u, 256u}) {
    for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
      Scene scene(3, 1, head_dim, block_size, element());
      scene.add_full(5, 5);
      scene.add_full(133, 2);
      scene.add_full(70, 70);
      scene.add_full(190, 33);
      EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << head_dim << " / " << block_size;
    }
  }
}

TEST_P(Attention, LeavesHolesOut) {
  for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
    for (const std::uint32_t queries : {1u, 3u, 50u}) {
      Scene scene(9, 3, 64, block_size, element());
      for (const std::uint32_t tokens : {100u, 333u, 1000u}) scene.add_full(tokens, queries);
      scene.add({8, 3, 8, 1, 7, 8, 8, 8, 8, 8, 8, 8}, queries, true);
      const std::vector<float> before = scene.run(2);
      scene.punch_holes();
      EXPECT_NE(scene.run(2), before);
      EXPECT_LE(relative_rms(scene.run(2), scene.reference()), kTolerance) << block_size << " / " << queries;
    }
  }
}

// While it is decoded, whether the context is one span or several, whether pages are full or not.
TEST_P(Attention, AddsWhatSlotsReceive) {
  for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
    for (const bool holes : {false, true}) {
      for (const std::uint32_t tokens : {1u, 70u, 2100u}) {
        Scene scene(14, 2, 32, block_size, element());
        tokens == 70 ? scene.add({8, 3, 8, 1, 7, 8, 8, 8, 8, 8, 1}, 1, true) : scene.add_full(tokens, 1);
        if (holes) scene.punch_holes();
        if (tokens == 2100 && holes) scene.set_window(1301);
        const auto got = scene.received_slots(0.5f, 3), expected = scene.received_slots_reference(0.5f);
        for (std::size_t head = 0; head < got.size(); ++head) {
          EXPECT_LE(relative_rms(got[head], expected[head]), kTolerance) << block_size << " / " << tokens;
        }
      }
    }
  }
}

TEST_P(Attention, PrefillsEveryGrouping) {
  for (const std::uint32_t group : {1u, 2u, 3u, 5u, 7u, 8u, 16u}) {
    Scene scene(2 * group, 2, 32, 16, element());
    scene.add_full(150, 100);
    EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << "group " << group;
  }
}

// Rows that heads keep leave pages in the middle partly filled, and heads with different numbers of tokens.
TEST_P(Attention, SkipsWhatPartlyFilledPagesDoNotHold) {
  for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
    for (const std::uint32_t queries : {1u, 2u, 9u, 40u}) {
      Scene scene(9, 3, 64, block_size, element());
      std::vector<std::uint32_t> counts;
      for (std::uint32_t i = 0; i < 60; ++i) counts.push_back(1 + i * 7 % block_size);
      for (std::uint32_t left = queries; left > 0; left -= counts.back()) counts.push_back(std::min(left, block_size));
      scene.add(counts, queries, true);
      EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << block_size << " / " << queries;
    }
  }
}

// Windows that begin at, before and after a page's border, or hold everything. What lies behind them would spoil every
// sum.
TEST_P(Attention, SeesNothingBehindItsWindow) {
  for (const std::uint32_t block_size : {8u, 16u, 64u}) {
    for (const std::uint32_t window : {1u, 63u, 64u, 130u, 10'000u}) {
      Scene scene(2, 1, 256, block_size, element());
      scene.add_full(1, 1);
      scene.add_full(400, 1);
      scene.add_full(201, 2);
      scene.add_full(90, 90);
      scene.add_full(333, 70);
      scene.set_window(window);
      scene.spoil_before(400 - std::min(window, 400u), 1);
      scene.spoil_before((264 - std::min(window, 264u)) / block_size * block_size, 4);
      EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << block_size << " / " << window;
    }
    for (const std::uint32_t queries : {1u, 40u}) {
      Scene scene(8, 2, 64, block_size, element());
      std::vector<std::uint32_t> counts;
      for (std::uint32_t i = 0; i < 60; ++i) counts.push_back(1 + i * 7 % block_size);
      for (std::uint32_t left = queries; left > 0; left -= counts.back()) counts.push_back(std::min(left, block_size));
      scene.add(counts, queries, true);
      scene.set_window(77);
      EXPECT_LE(relative_rms(scene.run(1), scene.reference()), kTolerance) << block_size << " / " << queries;
    }
  }
}

// Decoding it, prefilling it among any others, over one span or several, with the window's border anywhere.
TEST_P(Attention, GivesARowTheSameBitsBesideAnyOthers) {
  if (element() != PageElement::kHalf) GTEST_SKIP() << "nothing over int8 pages is exact";
  for (const std::uint32_t block_size : {8u, 16u, 64u}) {
    for (const std::uint32_t window : {0u, 77u, 600u}) {
      Scene scene(6, 2, 64, block_size, element());
      scene.add_full(1150, 700);
      scene.set_window(window);
      const std::vector<float> all = scene.run(2);
      const std::size_t row = all.size() / 700;
      for (const auto& [first, count] :
           {std::pair{0u, 1u}, {1u, 70u}, {62u, 3u}, {450u, 1u}, {473u, 200u}, {699u, 1u}}) {
        const std::vector<float> part = scene.run_part(first, count, 1 + count % 2);
        EXPECT_TRUE(std::ranges::equal(part, std::span(all).subspan(first * row, count * row)))
            << block_size << " / " << window << ": " << count << " from " << first;
      }
    }
  }
}

TEST_P(Attention, DoesNotDependOnThreads) {
  for (const std::uint32_t window : {0u, 600u}) {
    Scene scene(9, 3, 64, 16, element());
    scene.add_full(3000, 1);
    scene.add_full(517, 1);
    scene.add_full(2100, 24);
    scene.add_full(400, 300);
    scene.set_window(window);
    const std::vector<float> alone = scene.run(1);
    EXPECT_LE(relative_rms(alone, scene.reference()), kTolerance);
    for (const std::size_t threads : {2, 3, 7}) EXPECT_EQ(scene.run(threads), alone) << threads << " threads";
  }
}

TEST_P(Attention, SurvivesScoresFarApart) {
  Scene scene(2, 1, 64, 16, element());
  scene.add_full(400, 1);
  scene.add_full(400, 20);
  scene.scale_queries(300);
  EXPECT_LE(relative_rms(scene.run(2), scene.reference()), 3e-5);
}

TEST_P(Attention, SaysWhatEveryTokenReceives) {
  using Kind = ReceivedAttention::Kind;
  struct Case {
    std::uint32_t tokens, queries, first, count, window = 0;
  };
  for (const std::uint32_t head_dim : {8u, 72u}) {
    for (const std::uint32_t block_size : {8u, 64u}) {
      for (const auto& [tokens, queries, first, count, window] :
           {Case{1, 1, 0, 1}, Case{70, 70, 0, 70}, Case{333, 5, 0, 333}, Case{700, 1, 37, 600}, Case{650, 120, 3, 640},
            Case{700, 1, 37, 600, 300}, Case{650, 120, 3, 640, 77}, Case{650, 120, 3, 100, 77}}) {
        Scene scene(6, 2, head_dim, block_size, element());
        scene.add_full(tokens, queries);
        scene.set_window(window);
        for (const Kind kind : {Kind::kSum, Kind::kLargest}) {
          const float begin = kind == Kind::kSum ? 0.5f : 0.01f;
          const auto got = scene.received(kind, first, count, begin, 1);
          EXPECT_LE(relative_rms(got, scene.received_reference(kind, first, count, begin)), 1e-5)
              << head_dim << " / " << block_size << " / " << tokens << " / " << queries << " / " << window;
          EXPECT_EQ(scene.received(kind, first, count, begin, 3), got);
        }
      }
    }
  }
}

TEST_P(Attention, WritesRowsWhereTheTablesSay) {
  for (const std::uint32_t block_size : {8u, 16u, 64u}) {
    const PageShape shape{.layers = 2, .kv_heads = 2, .head_dim = 72, .block_size = block_size, .element = element()};
    const auto pool = std::move(PagePool::create(shape, 40 * shape.block_bytes()).value());
    Sequence sequence(*pool);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const std::uint32_t count : {1u, 5u, 40u, 2u, 100u}) {
      const std::size_t stride = 2 * shape.head_dim;
      std::vector<float> rows(count * stride);
      for (float& each : rows) each = normal(random);
      rows[3] = 1.0f + 0x1p-11f;  // a tie
      rows[4] = 0x1.8p-24f;       // subnormal
      ASSERT_TRUE(sequence.append(count));
      write_kv(*pool, sequence, 1, 1, count, rows.data(), rows.data() + shape.head_dim, stride);
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto place = sequence.appended(1, 1, i, count);
        std::vector<Half> keys(shape.head_dim), values(shape.head_dim);
        read_tokens(shape, pool->host_view().bytes(place.page), place.slot, 1, keys.data(), 1, values.data());
        for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
          const float key = rows[i * stride + c], value = rows[i * stride + shape.head_dim + c];
          if (element() == PageElement::kHalf) {
            ASSERT_EQ(keys[c], to_half(key));
            ASSERT_EQ(values[c], to_half(value));
          } else {  // of numbers below 5: half a scale, and what halves round
            ASSERT_NEAR(to_float(keys[c]), key, 5.0 / 127 / 2 + 2e-3);
            ASSERT_NEAR(to_float(values[c]), value, 5.0 / 127 / 2 + 2e-3);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shale
