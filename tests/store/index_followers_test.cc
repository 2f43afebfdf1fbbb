// Logs that grow too long, are folded, or cannot be listed while others follow them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <utility>

#include "store/index_folder_fixture.h"

namespace shale::testing {
namespace {

// Its log has become too long: it goes on in another one, in which others find at once what it is at.
TEST_F(IndexFolderTest, ALongLogIsFollowedByAnotherOfWhichNothingIsToldTwice) {
  const auto one = IndexFolder::open(folder_.path(), 4096).value(), other = open();
  std::vector<std::uint64_t> told;
  std::vector<std::uint64_t> to_one;
  const auto note = [](std::vector<std::uint64_t>& names) {
    return [&names](const IndexRecord& record) {
      if (record.type == IndexRecord::Type::kStored) names.push_back(record.facts.name.high);
    };
  };
  one->load([](const IndexRecord&) {});
  other->load([](const IndexRecord&) {});
  ASSERT_TRUE(other->lead());
  one->append(about(IndexRecord::Type::kWriting, 1000));
  std::vector<std::uint64_t> all;
  for (std::uint64_t name = 1; name <= 200; ++name) {
    all.push_back(name);
    one->append(stored(name));
    ASSERT_TRUE(one->flush());
    one->follow(note(to_one));
    other->follow(note(told));
    EXPECT_TRUE(other->unfinished_of_the_dead().empty()) << "its writer lives";
    EXPECT_EQ(other->unfinished().back().name.high, 1000u);
  }
  EXPECT_GT(files("log-").size(), 3u);
  EXPECT_EQ(told, all);
  EXPECT_TRUE(to_one.empty()) << "they are its own";
  one->append(about(IndexRecord::Type::kSettled, 1000, 3));
  ASSERT_TRUE(one->flush());
  other->follow(note(told));
  EXPECT_TRUE(other->unfinished().empty());
  EXPECT_EQ(told, all);
}

TEST_F(IndexFolderTest, TheEndOfALogIsReadThoughTheLeaderHasFoldedIt) {
  auto dead = open();
  const auto leader = open(), follower = open();
  Known known, seen;
  leader->load(known.visit());
  follower->load(seen.visit());
  dead->append(stored(1));
  ASSERT_TRUE(dead->flush());
  follower->follow(seen.visit());
  dead->append(stored(2));
  ASSERT_TRUE(dead->flush());
  dead = nullptr;
  ASSERT_TRUE(leader->lead());
  leader->follow(known.visit());
  ASSERT_TRUE(leader->write_snapshot([&](const IndexFolder::Visit& add) {
    for (const std::uint64_t name : known.names()) add(stored(name));
  }));
  EXPECT_EQ(files("log-").size(), 2u);
  follower->follow(seen.visit());
  EXPECT_THAT(seen.names(), ::testing::ElementsAre(1, 2));
}

TEST_F(IndexFolderTest, WhatCouldNotBeListedIsNotToldAgain) {
  const auto one = open(), other = open();
  std::vector<std::uint64_t> told;
  const auto note = [&told](const IndexRecord& record) {
    if (record.type == IndexRecord::Type::kStored) told.push_back(record.facts.name.high);
  };
  other->load(note);
  one->append(stored(1));
  ASSERT_TRUE(one->flush());
  other->follow(note);
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  other->follow(note);
  setrlimit(RLIMIT_NOFILE, &before);
  one->append(stored(2));
  ASSERT_TRUE(one->flush());
  const auto third = open();
  third->append(stored(3, 5));
  ASSERT_TRUE(third->flush());
  setrlimit(RLIMIT_NOFILE, &none);
  other->follow(note);
  setrlimit(RLIMIT_NOFILE, &before);
  other->follow(note);
  EXPECT_THAT(told, ::testing::ElementsAre(1, 2, 3));
}

TEST_F(IndexFolderTest, ASnapshotThatIsReplacedWhileItIsReadIsNoWholeIndex) {
  auto dead = open();
  const auto leader = open();
  ASSERT_TRUE(leader->lead());
  ASSERT_TRUE(leader->write_snapshot([](const IndexFolder::Visit& add) { add(stored(1)); }));
  dead->append(stored(2));
  ASSERT_TRUE(dead->flush());
  dead = nullptr;
  bool replaced = false;
  const auto replace = [&](const IndexRecord& record) {
    if (record.type != IndexRecord::Type::kStored || std::exchange(replaced, true)) return;
    leader->follow([](const IndexRecord&) {});
    ASSERT_TRUE(leader->write_snapshot([](const IndexFolder::Visit& add) {
      add(stored(1));
      add(stored(2));
    }));
  };
  EXPECT_FALSE(open()->load(replace)) << "2 is in neither the old snapshot nor a log";
  EXPECT_TRUE(open()->load(replace));
}

}  // namespace
}  // namespace shale::testing
