#include "core/lru_map.h"

#include <gtest/gtest.h>

#include <string>

namespace shale {
namespace {

TEST(LruMap, KnowsWhatWasTouchedLongestAgo) {
  LruMap<int, std::string> map;
  EXPECT_EQ(map.find(1), nullptr);
  for (const int key : {1, 2, 3}) map.touch(key, std::to_string(key));
  EXPECT_EQ(map.oldest().first, 1);
  EXPECT_EQ(map.touch(1, "another"), "1") << "it is there already";
  EXPECT_EQ(map.oldest().first, 2);
  ASSERT_NE(map.find(2), nullptr);
  EXPECT_EQ(map.oldest().first, 2) << "finding touches nothing";

  const std::string* kept = map.find(1);
  map.erase(2);
  map.erase(2);
  EXPECT_EQ(map.find(2), nullptr);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.find(1), kept) << "others stay in place";
  EXPECT_EQ(map.begin()->first, 1);
  map.erase_oldest();
  EXPECT_EQ(map.find(3), nullptr);
  EXPECT_EQ(map.oldest().first, 1);
}

}  // namespace
}  // namespace shale
