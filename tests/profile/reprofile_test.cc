// A context that was profiled is profiled again on more questions.
#include <algorithm>

#include "profile/quality_watch_fixture.h"

namespace shale {
namespace {

using testing::QualityWatchTest;

class ReprofileTest : public QualityWatchTest {
 protected:
  void SetUp() override {
    QualityWatchTest::SetUp();
    options_.profile_new = true;
    options_.check.threshold = -2;  // nothing agrees enough
  }
  void pretend_none_agreed() {
    for (QualityRecord row : profiled()) {
      row.quality = 0;
      ASSERT_TRUE(metadata_store().record_quality(row));
    }
  }
  double most() { return std::ranges::max(profiled(), {}, &QualityRecord::quality).quality; }
  std::uint32_t questions() { return std::ranges::max(profiled(), {}, &QualityRecord::questions).questions; }
  void profile_on(QualityWatch& watch, const std::string& what, std::uint32_t count) {
    const std::uint64_t before = watch.stats().profiled;
    ask_several(watch, what, count);
    work_all(watch);
    ASSERT_EQ(watch.stats().profiled, before + 1);
  }
};

// Int8 agrees nearly everywhere; so what it has less is of what was pretended.
TEST_F(ReprofileTest, AsksWhatIsNewAlone) {
  QualityWatch watch(options_, *bench_.engine);
  profile_on(watch, "who", 1);
  const double alone = most();
  ASSERT_GT(alone, 0.5);
  pretend_none_agreed();
  profile_on(watch, "what", 1);
  EXPECT_EQ(questions(), 2u);
  EXPECT_GT(most(), 0.25) << "the second was asked";
  EXPECT_LE(most(), 0.5) << "the first was not";
  pretend_none_agreed();
  profile_on(watch, "when", 2);
  EXPECT_EQ(questions(), 4u);
  EXPECT_LE(most(), 0.5);
}

TEST_F(ReprofileTest, AsksAllOnceTheProfileNoLongerHolds) {
  QualityWatch watch(options_, *bench_.engine);
  profile_on(watch, "who", 4);
  pretend_none_agreed();
  profile_on(watch, "why", 4);
  EXPECT_EQ(watch.stats().drifted, 1u);
  EXPECT_EQ(questions(), 4u);
  EXPECT_GT(most(), 0.5) << "nothing is left of what was pretended";
}

TEST_F(ReprofileTest, AsksAllWhereItsProfileWasForgotten) {
  QualityWatch watch(options_, *bench_.engine);
  profile_on(watch, "who", 1);
  ASSERT_TRUE(metadata_store().forget(bench_.cache->run_of(context_)));
  profile_on(watch, "what", 1);
  EXPECT_EQ(questions(), 2u);
}

// Another process's has more questions than this one asked.
TEST_F(ReprofileTest, AsksAllWhereItsProfileWasReplaced) {
  QualityWatch watch(options_, *bench_.engine);
  profile_on(watch, "who", 1);
  pretend_none_agreed();
  for (QualityRecord row : profiled()) {
    row.questions = 2;
    ASSERT_TRUE(metadata_store().record_quality(row));
  }
  profile_on(watch, "what", 3);
  EXPECT_EQ(questions(), 4u);
  EXPECT_GT(most(), 0.5);
}

}  // namespace
}  // namespace shale
