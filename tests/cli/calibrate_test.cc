// `shale calibrate`, and what a calibration is good for.
#include <gmock/gmock.h>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class CalibrateTest : public TinyProgram {
 protected:
  std::string calibration() const { return home_.path() / "tiny.calibration"; }
  Outcome calibrate() { return run({"calibrate", "--text", context_, "--output", calibration(), "--json"}); }
  Words rank() const { return generate({"--calibration", calibration(), "--method", "triattention", "--keep", "0.5"}); }
};

TEST_F(CalibrateTest, MakesWhatTriattentionReads) {
  const Outcome made = calibrate();
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.object()["bytes"], std::filesystem::file_size(calibration()));
  EXPECT_EQ(made.object()["tokens"], std::filesystem::file_size(context_));

  const Outcome first = run(rank());
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.object()["lossy"], true);
  const auto loaded = run(rank()).object();
  EXPECT_EQ(loaded["sources"][0]["method"], "triattention");
  EXPECT_EQ(loaded["tokens"], first.object()["tokens"]);
}

TEST_F(CalibrateTest, WithoutACalibrationTriattentionIsRefused) {
  const Outcome outcome = run(generate({"--method", "triattention"}));
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("calibration"));
}

TEST_F(CalibrateTest, ThatOfAnotherCheckpointIsRefused) {
  ASSERT_EQ(calibrate().status, 0);
  const auto other = home_.path() / "other.gguf";
  write_tiny_model({.vocabulary = kByteVocabulary, .seed = 2}, other,
                   [](gguf_context* metadata) { set_byte_vocabulary(metadata); });
  environment_["SHALE_MODEL"] = other;
  const Outcome outcome = run(rank());
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("tiny.calibration"));
}

TEST_F(CalibrateTest, ADamagedOneIsRefused) {
  ASSERT_EQ(calibrate().status, 0);
  flip_a_byte(calibration());
  const Outcome outcome = run(rank());
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("tiny.calibration"));
}

TEST_F(CalibrateTest, AMissingTextLeavesNothingBehind) {
  const Outcome outcome = run({"calibrate", "--text", home_.path() / "none", "--output", calibration()});
  EXPECT_NE(outcome.status, 0);
  EXPECT_FALSE(std::filesystem::exists(calibration()));
}

}  // namespace
}  // namespace shale::testing
