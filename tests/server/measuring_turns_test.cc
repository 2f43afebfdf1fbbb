#include "server/measuring_turns.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

constexpr double kQuietS = 10;

TEST(MeasuringTurns, APieceIsPaidForBeforeTheNextWhileRequestsCome) {
  MeasuringTurns turns(kQuietS);
  turns.note_request(100);
  EXPECT_TRUE(turns.due(100));
  turns.note_piece(100, 2, 0);
  turns.note_request(115);
  EXPECT_FALSE(turns.due(100 + 2 / MeasuringTurns::kShare - 1));
  EXPECT_TRUE(turns.due(100 + 2 / MeasuringTurns::kShare));
}

TEST(MeasuringTurns, AllTimeIsItsOnceNoRequestHasComeForAWhile) {
  MeasuringTurns turns(kQuietS);
  turns.note_request(100);
  turns.note_piece(100, 30, 0);
  EXPECT_FALSE(turns.due(100 + kQuietS - 1));
  EXPECT_TRUE(turns.due(100 + kQuietS));
  turns.note_request(111);
  EXPECT_FALSE(turns.due(111));
}

TEST(MeasuringTurns, StoringAndMeasuringKeepToOneShare) {
  MeasuringTurns turns(kQuietS);
  double now_s = 0, stored_s = 0, measured_s = 0;
  constexpr double kPieceS = 0.5, kStoringShare = 0.04;
  for (int pieces = 0; pieces < 200; ++pieces) {
    turns.note_request(now_s);
    turns.note_piece(now_s, kPieceS, stored_s);
    measured_s += kPieceS;
    for (; !turns.due(now_s); now_s += 0.01) turns.note_request(now_s);
    stored_s = kStoringShare * now_s;
  }
  EXPECT_NEAR((measured_s + stored_s) / now_s, MeasuringTurns::kShare, 0.002);
}

TEST(MeasuringTurns, HalfOfTheShareIsMeasuringsHoweverMuchIsStored) {
  MeasuringTurns turns(kQuietS);
  turns.note_request(100);
  turns.note_piece(100, 0, 0);
  turns.note_piece(100, 2, 60);
  turns.note_request(135);
  EXPECT_FALSE(turns.due(100 + 2 * 2 / MeasuringTurns::kShare - 1));
  EXPECT_TRUE(turns.due(100 + 2 * 2 / MeasuringTurns::kShare));
}

TEST(MeasuringTurns, WhatWasStoredWhileNobodyCameIsNotPaidFor) {
  MeasuringTurns turns(kQuietS);
  turns.note_piece(100, 0.1, 60);
  turns.note_request(101);
  turns.note_piece(101, 2, 60);
  turns.note_request(120);
  EXPECT_TRUE(turns.due(101 + 2 / MeasuringTurns::kShare));
}

TEST(MeasuringTurns, WhatStoringLeftOfTheShareIsNotOwedLater) {
  MeasuringTurns turns(kQuietS);
  turns.note_piece(0, 0, 0);
  turns.note_request(1000);
  turns.note_piece(1000, 2, MeasuringTurns::kShare * 1000);  // there was nothing to measure meanwhile
  turns.note_request(1020);
  EXPECT_TRUE(turns.due(1000 + 2 / MeasuringTurns::kShare));
}

}  // namespace
}  // namespace shale
