// A folder with a metadata store, and a clock that tests turn.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "metadata/metadata_store.h"

namespace shale {

inline constexpr Hash128 kModel{1, 1}, kOtherModel{2, 2};
inline constexpr Hash128 kFirst{3, 3}, kSecond{4, 4}, kUnknown{5, 5}, kThird{6, 6};
inline constexpr double kHalfLifeS = 600;
inline const Method kKeydiff{"keydiff", "none"}, kInt8{"", "int8"};

inline double wall_s = 0;
inline double test_wall_s() { return wall_s; }

class MetadataStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wall_s = 1e9;
    std::string name = ::testing::TempDir() + "catalogueXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path() const { return folder_ / "catalogue.sqlite"; }
  std::unique_ptr<MetadataStore> open(const Hash128& model = kModel) const {
    auto opened = MetadataStore::open(path(), model, test_wall_s);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }

  std::filesystem::path folder_;
};

}  // namespace shale
