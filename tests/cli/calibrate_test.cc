// `shale calibrate`, and what a calibration is good for.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "cli/shale_program.h"
#include "quantizers/cachegen_tables.h"

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

TEST_F(CalibrateTest, TwoCalibrationsDoNotGoIntoOneFile) {
  const Outcome outcome =
      run({"calibrate", "--text", context_, "--output", calibration(), "--cachegen-tables", calibration()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("tiny.calibration"));
  EXPECT_FALSE(std::filesystem::exists(calibration()));
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

class CachegenTablesTest : public CalibrateTest {
 protected:
  std::string tables() const { return home_.path() / "tiny.tables"; }
  Outcome count(const std::string& text) {
    return run({"calibrate", "--text", text, "--cachegen-tables", tables(), "--json"});
  }
  Words code() const {
    return generate({"--cachegen-tables", tables(), "--method", "knorm+cachegen", "--keep", "0.75"});
  }
};

TEST_F(CachegenTablesTest, AreWhatCachegenIsCodedBy) {
  const Outcome made = count(context_);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.object()["bytes"], std::filesystem::file_size(tables()));
  const Outcome first = run(code());
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.object()["lossy"], true);
  const auto loaded = run(code()).object();
  EXPECT_EQ(loaded["sources"][0]["method"], "knorm+cachegen");
  EXPECT_EQ(loaded["tokens"], first.object()["tokens"]);

  // Coded by other tables than are loaded: not read, and no request fails for it.
  const auto other_text = home_.path() / "other.txt";
  std::ofstream(other_text) << "A text of its own, with other words and therefore other counts of codes.";
  ASSERT_EQ(count(other_text).status, 0);
  const Outcome recoded = run(code());
  EXPECT_EQ(recoded.status, 0) << recoded.err;
  EXPECT_EQ(recoded.object()["lossy"], true);
}

// Bits of cachegen are what its tables make of them.
TEST_F(CachegenTablesTest, AreWhatItsBitsFollowFrom) {
  ASSERT_EQ(count(context_).status, 0);
  const std::string bytes = read(tables());
  Hash128 model;
  std::memcpy(&model.high, bytes.data() + 24, sizeof model.high);
  std::memcpy(&model.low, bytes.data() + 32, sizeof model.low);
  const double bits = CachegenTables::parse(std::as_bytes(std::span(bytes)), model).value().bits();
  const auto contexts =
      file("contexts.jsonl", R"({"id":"a","context":"One text. Another text.","questions":["Why?"]})");
  const Outcome measured =
      run({"quality", "--contexts", contexts, "--cachegen-tables", tables(), "--compare",
           "cachegen,knorm+cachegen,knorm+int8/kivi2", "--keeps", "0.5", "--answer-tokens", "2", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  for (const auto& row : measured.objects()) {
    EXPECT_DOUBLE_EQ(row["bits"].get<double>(), row["method"] == "knorm+int8/kivi2" ? 0.2 * 8 + 0.8 * 2 : bits);
  }
  EXPECT_EQ(measured.objects().size(), 3u);
}

TEST_F(CachegenTablesTest, MissingDamagedOrForeignOnesAreRefused) {
  const Outcome without = run(generate({"--method", "cachegen"}));
  EXPECT_NE(without.status, 0);
  EXPECT_THAT(without.err, HasSubstr("needs tables"));
  EXPECT_NE(run({"calibrate", "--text", context_}).status, 0) << "no file to write";

  ASSERT_EQ(count(context_).status, 0);
  flip_a_byte(tables());
  const Outcome damaged = run(code());
  EXPECT_NE(damaged.status, 0);
  EXPECT_THAT(damaged.err, HasSubstr("tiny.tables"));

  ASSERT_EQ(count(context_).status, 0);
  const auto other = home_.path() / "other.gguf";
  write_tiny_model({.vocabulary = kByteVocabulary, .seed = 2}, other,
                   [](gguf_context* metadata) { set_byte_vocabulary(metadata); });
  environment_["SHALE_MODEL"] = other;
  const Outcome foreign = run(code());
  EXPECT_NE(foreign.status, 0);
  EXPECT_THAT(foreign.err, HasSubstr("another model"));
}

TEST_F(CalibrateTest, AMissingTextLeavesNothingBehind) {
  const Outcome outcome = run({"calibrate", "--text", home_.path() / "none", "--output", calibration()});
  EXPECT_NE(outcome.status, 0);
  EXPECT_FALSE(std::filesystem::exists(calibration()));
}

}  // namespace
}  // namespace shale::testing
