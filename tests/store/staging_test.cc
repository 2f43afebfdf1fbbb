// What may be on its way beside what.
#include "extents/staging.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Staging, OfEachKindOneGoesOn) {
  Staging staging(1000);
  const auto save = staging.take(StagedFor::kSaves, 5000);
  EXPECT_TRUE(save);
  EXPECT_FALSE(staging.take(StagedFor::kSaves, 1));
  for (const StagedFor kind : {StagedFor::kBecoming, StagedFor::kCopies, StagedFor::kMoves, StagedFor::kLoads}) {
    const auto one = staging.take(kind, 400);
    EXPECT_TRUE(one);
    EXPECT_FALSE(staging.take(kind, 1)) << "beside what is there";
    EXPECT_TRUE(staging.take(kind, 1, true));
  }
  EXPECT_EQ(staging.used(), 5000u);
}

TEST(Staging, APartIsKeptForMovesAndOneForLoads) {
  Staging staging(1000);
  const auto saves = staging.take(StagedFor::kSaves, 600);
  EXPECT_FALSE(staging.take(StagedFor::kSaves, 100));
  const auto move = staging.take(StagedFor::kMoves, 200);
  EXPECT_TRUE(staging.take(StagedFor::kMoves, 50));
  EXPECT_FALSE(staging.take(StagedFor::kMoves, 100));
  const auto load = staging.take(StagedFor::kLoads, 100);
  EXPECT_TRUE(staging.take(StagedFor::kLoads, 25));
}

TEST(Staging, WhatHangsIsBesideTheBound) {
  Staging staging(1000);
  auto hanging = staging.take(StagedFor::kMoves, 2000);
  EXPECT_FALSE(staging.take(StagedFor::kMoves, 100));
  hanging.turn_into(StagedFor::kHanging);
  EXPECT_EQ(staging.used(), 2000u);
  for (const StagedFor kind : {StagedFor::kMoves, StagedFor::kSaves}) {
    const auto one = staging.take(kind, 300);
    EXPECT_TRUE(staging.take(kind, 100)) << "another";
  }
  hanging = {};
  EXPECT_EQ(staging.used(), 0u);
}

TEST(Staging, AShareBecomesAnother) {
  Staging staging(1000);
  auto share = staging.take(StagedFor::kBecoming, 900);
  share.turn_into(StagedFor::kSaves, 300);
  EXPECT_EQ(staging.used(StagedFor::kBecoming), 0u);
  EXPECT_EQ(staging.used(StagedFor::kSaves), 300u);
  share = {};
  EXPECT_EQ(staging.used(), 0u);
}

}  // namespace
}  // namespace shale
