#include "server/tier_news.h"

#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TierNewsTest, SaysWhenTroubleBeginsAndWhenItHasEnded) {
  TierNews news;
  const std::vector<TierNews::State> well = {{"disk", {}}, {"remote", {}}};
  const std::vector<TierNews::State> full = {{"disk", "cannot write /x: No space left on device"}, {"remote", {}}};
  EXPECT_THAT(news.look(well, 0), IsEmpty());
  EXPECT_THAT(news.look(full, 1),
              ElementsAre("tier disk: cannot write /x: No space left on device; answers go on without it"));
  for (double now_s = 1; now_s < 100; now_s += 0.1) EXPECT_THAT(news.look(full, now_s), IsEmpty()) << "once";
  EXPECT_THAT(news.look(well, 101), IsEmpty()) << "a write that worked is not the end of it";
  EXPECT_THAT(news.look(full, 102), IsEmpty());
  EXPECT_THAT(news.look(well, 106), IsEmpty());
  EXPECT_THAT(news.look(well, 107.1), ElementsAre("tier disk works again"));
  EXPECT_THAT(news.look(well, 120), IsEmpty());
  EXPECT_EQ(news.look(full, 121).size(), 1u);
}

}  // namespace
}  // namespace shale
