// The simulated engine's constants are copies: the simulator is below the engine.
#include <gtest/gtest.h>

#include "engine/batch.h"
#include "engine/engine.h"
#include "sim/batched_engine.h"

namespace shale {
namespace {

TEST(SimulatedEngine, BatchesAsTheEngineDoes) {
  const BatchingOptions simulated;
  const EngineOptions real;
  EXPECT_EQ(simulated.sequences_max, real.sequences_max);
  EXPECT_EQ(simulated.chunk_tokens, real.chunk_tokens);
  EXPECT_EQ(simulated.chunk_slowdown, real.chunk_slowdown);
  EXPECT_EQ(simulated.chunk_step_s, real.chunk_step_s);
  EXPECT_EQ(kSimulatedWaitWorth, kWaitWorth);
}

}  // namespace
}  // namespace shale
