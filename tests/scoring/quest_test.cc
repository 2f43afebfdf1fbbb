#include "scoring/scorers/quest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scoring/attention_twins.h"
#include "scoring/paged_layer.h"

namespace shale {
namespace {

TEST(Quest, BoundsEveryProductOfAPage) {
  LayerRows rows = random_rows(75, 2, 1, 18, 1);
  for (const std::uint32_t block_size : {8u, 16u, 64u}) {
    const PagedLayer<Half> half(rows, block_size, {});
    const PagedLayer<float> full(rows, block_size, {});
    for (std::uint32_t head = 0; head < 2; ++head) {
      const PageBounds bounds = page_bounds(half.layer(), head);
      ASSERT_EQ(bounds.pages(), (75 + block_size - 1) / block_size);
      EXPECT_EQ(bounds.smallest, page_bounds(full.layer(), head).smallest);
      EXPECT_EQ(bounds.largest, page_bounds(full.layer(), head).largest);
      const std::span query = std::span(rows.queries).subspan(head * 75 * 18, 18);
      const std::vector<float> scores = page_scores(bounds, query);
      for (std::uint32_t page = 0; page < bounds.pages(); ++page) {
        double expected = 0;
        for (std::uint32_t c = 0; c < 18; ++c) {
          double best = -std::numeric_limits<double>::infinity();
          for (std::uint32_t i = page * block_size; i < std::min(75u, (page + 1) * block_size); ++i) {
            best = std::max(best, double{query[c]} * rows.key(head, i, c));
          }
          expected += best;
        }
        EXPECT_NEAR(scores[page], expected, 1e-5);
        for (std::uint32_t i = page * block_size; i < std::min(75u, (page + 1) * block_size); ++i) {
          EXPECT_LE(dot(query.data(), &rows.key(head, i, 0), 18), scores[page] + 1e-5);
        }
      }
    }
  }
}

TEST(Quest, LeavesKeysOutThatAreNotFinite) {
  LayerRows rows = random_rows(24, 1, 1, 32, 2);
  for (std::uint32_t i = 8; i < 16; ++i) rows.key(0, i, i) = std::nanf("");
  rows.key(0, 3, 3) = std::numeric_limits<float>::infinity();
  const PagedLayer<float> layer(rows, 8, {});
  const std::vector<float> scores = page_scores(page_bounds(layer.layer(), 0), std::span(rows.queries).first(32));
  EXPECT_TRUE(std::isfinite(scores[0]));
  EXPECT_EQ(scores[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(scores[2]));
}

TEST(Quest, SelectsTheBestPagesNewerFirstInAscendingOrder) {
  const std::vector<float> scores = {1, 5, 2, 5, 2};
  EXPECT_EQ(select_pages(scores, 3), (std::vector<std::uint32_t>{1, 3, 4}));
  EXPECT_EQ(select_pages(scores, 9).size(), 5u);
  EXPECT_TRUE(select_pages(scores, 0).empty());
  EXPECT_TRUE(select_pages({}, 3).empty());
}

}  // namespace
}  // namespace shale
