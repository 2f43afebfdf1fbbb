#include "server/tier_news.h"

#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

TEST(TierNewsTest, ATierThatOnlyRefusesToRemoveIsSaidToServe) {
  TierNews news;
  const TierNews::State well{"s3", {}}, refusing{"s3", "status 403", true}, down{"s3", "no answer"};
  EXPECT_THAT(news.look({well, refusing}, 1), ElementsAre("tier s3: what is to be removed stays for now: status 403"));
  EXPECT_THAT(news.look({down, refusing}, 2), ElementsAre("tier s3: no answer; answers go on without it"));
  const TierNews::State removing{"s3", {}, true};
  EXPECT_THAT(news.look({well, removing}, 8), ElementsAre("tier s3 works again", "tier s3 removes again"));
}

TEST(TierNewsTest, WhileATierIsInTroubleNothingIsSaidOfItsRemovals) {
  TierNews news;
  const TierNews::State well{"s3", {}}, down{"s3", "no answer"};
  const TierNews::State refusing{"s3", "status 403", true}, quiet{"s3", {}, true};
  EXPECT_THAT(news.look({well, refusing}, 1), SizeIs(1));
  EXPECT_THAT(news.look({down, refusing}, 2), ElementsAre("tier s3: no answer; answers go on without it"));
  EXPECT_THAT(news.look({down, quiet}, 8), IsEmpty()) << "nothing was removed";
  EXPECT_THAT(news.look({well, refusing}, 13), ElementsAre("tier s3 works again")) << "that it refuses is known";
  EXPECT_THAT(news.look({well, quiet}, 17), IsEmpty());
  EXPECT_THAT(news.look({well, quiet}, 18), ElementsAre("tier s3 removes again"));

  TierNews of_another;
  EXPECT_THAT(of_another.look({down, refusing}, 1), ElementsAre("tier s3: no answer; answers go on without it"));
  EXPECT_THAT(of_another.look({well, refusing}, 6),
              ElementsAre("tier s3 works again", "tier s3: what is to be removed stays for now: status 403"));
}

}  // namespace
}  // namespace shale
