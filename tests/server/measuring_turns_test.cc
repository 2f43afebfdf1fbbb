#include "server/measuring_turns.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

constexpr double kQuietS = 10;

TEST(MeasuringTurns, APieceIsPaidForBeforeTheNextWhileRequestsCome) {
  MeasuringTurns turns(kQuietS);
  turns.note_request(100);
  EXPECT_TRUE(turns.due(100));
  turns.note_piece(100, 2);
  turns.note_request(115);
  EXPECT_FALSE(turns.due(100 + 2 / MeasuringTurns::kShare - 1));
  EXPECT_TRUE(turns.due(100 + 2 / MeasuringTurns::kShare));
}

TEST(MeasuringTurns, AllTimeIsItsOnceNoRequestHasComeForAWhile) {
  MeasuringTurns turns(kQuietS);
  turns.note_request(100);
  turns.note_piece(100, 30);
  EXPECT_FALSE(turns.due(100 + kQuietS - 1));
  EXPECT_TRUE(turns.due(100 + kQuietS));
  turns.note_request(111);
  EXPECT_FALSE(turns.due(111));
}

}  // namespace
}  // namespace shale
