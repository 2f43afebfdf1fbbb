// The recorded choice of weight types: read by later loads, part of the fingerprint, never trusted.
#include "model/weights/weight_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "model/weights/packed_matrix.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WeightRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path() / "tiny.gguf";
    testing::write_tiny_model({}, path_);
  }

  std::unique_ptr<Model> load(std::uint32_t threads = 1) const {
    return Model::load(path_, {.choices_folder = choices(), .threads = threads}).value();
  }

  std::filesystem::path choices() const { return folder_.path() / "cache" / "weights"; }

  // The one file that loads with one thread leave.
  std::filesystem::path record() const {
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(choices()), {}), 1);
    return std::filesystem::directory_iterator(choices())->path();
  }

  std::string text() const {
    std::ifstream stream(record());
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  void replace(const std::string& text) const { std::ofstream(record()) << text; }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST_F(WeightRecordTest, LaterLoadsReadWhatTheFirstMeasured) {
  EXPECT_THAT(load()->info().prefill_weights, Not(HasSubstr("when first loaded")));
  EXPECT_EQ(std::filesystem::status(record()).permissions(), std::filesystem::perms(0600));

  replace("prefill bf16 3.50\ndecode file 1.00\nfrom 8\n");
  const auto recorded = load();
  EXPECT_EQ(recorded->info().prefill_weights, "bf16 (measured 3.5x f32 when first loaded)");
  EXPECT_EQ(recorded->info().decode_weights, "f32 (as in the file, fastest measured when first loaded)");
  EXPECT_EQ(recorded->fingerprint(), load()->fingerprint());
  EXPECT_EQ(text(), "prefill bf16 3.50\ndecode file 1.00\nfrom 8\n");
}

TEST_F(WeightRecordTest, TheFingerprintNamesTheTypesThatRun) {
  load();
  std::vector<Hash128> fingerprints;
  for (const char* choice : {"prefill bf16 2\ndecode file 1\nfrom 8\n", "prefill bf16 2\ndecode bf16 1.5\nfrom 0\n",
                             "prefill file 1\ndecode file 1\nfrom 0\n", "prefill file 1\ndecode bf16 2\nfrom 8\n"}) {
    replace(choice);
    fingerprints.push_back(load()->fingerprint());
  }
  fingerprints.push_back(Model::load(path_, {.weights = WeightChoice::kFile, .threads = 1}).value()->fingerprint());
  std::ranges::sort(fingerprints);
  EXPECT_EQ(std::ranges::adjacent_find(fingerprints), fingerprints.end());

  // How much faster the types were decides nothing, nor how many tokens those must be that run the one of prefill
  // though they are answers: engines of one machine measure both differently, and share what they store.
  replace("prefill bf16 2\ndecode file 1\nfrom 8\n");
  const Hash128 first = load()->fingerprint();
  for (const char* choice : {"prefill bf16 4\ndecode file 1\nfrom 8\n", "prefill bf16 2\ndecode file 1\nfrom 16\n"}) {
    replace(choice);
    EXPECT_EQ(load()->fingerprint(), first);
  }
}

TEST_F(WeightRecordTest, WhatTheUsersOfAStoreAgreedOnRuns) {
  const Hash128 own = load()->fingerprint();
  const std::string found = text();
  const auto told = [&](const std::string& agreed) {
    return Model::load(path_, {.choices_folder = choices(),
                               .agree =
                                   [&](const Hash128&, const std::string& mine) {
                                     EXPECT_EQ(mine, found);
                                     return agreed;
                                   },
                               .threads = 1})
        .value();
  };
  EXPECT_EQ(told(found)->fingerprint(), own);
  EXPECT_EQ(told("prefill q9_9 2\ndecode file 1\nfrom 8\n")->fingerprint(), own) << "of no candidate";
  EXPECT_EQ(told("")->fingerprint(), own);

  const std::string theirs = "prefill bf16 3.50\ndecode bf16 2.00\nfrom 0\n";
  const auto model = told(theirs);
  EXPECT_EQ(model->info().prefill_weights, "bf16 (measured 3.5x f32 when first loaded)");
  EXPECT_EQ(text(), found) << "is what this machine measured";
  replace(theirs);
  EXPECT_EQ(load()->fingerprint(), model->fingerprint());
}

// Who has no memory for a second copy of the weights runs one type, and knows that others have two.
TEST_F(WeightRecordTest, WhatWasAgreedOnMayNotFitIntoMemory) {
  load();
  const auto within = [&](std::uint64_t memory_bytes, const std::string& agreed) {
    const auto agree = [&](const Hash128&, const std::string&) { return agreed; };
    const ModelOptions options = {
        .choices_folder = choices(), .agree = agree, .memory_bytes = memory_bytes, .threads = 1};
    return Model::load(path_, options).value();
  };
  const std::string one = "prefill bf16 3.50\ndecode bf16 2.00\nfrom 0\n";
  const std::string two = "prefill bf16 3.50\ndecode file 1.00\nfrom 8\n";
  const auto large = within(std::uint64_t{1} << 40, two), small = within(1, two);
  EXPECT_TRUE(large->info().as_agreed);
  EXPECT_FALSE(small->info().as_agreed);
  EXPECT_THAT(small->info().decode_weights, HasSubstr("no memory for a second copy"));
  EXPECT_NE(small->fingerprint(), large->fingerprint());
  EXPECT_TRUE(within(1, one)->info().as_agreed);
  replace(two);
  EXPECT_FALSE(within(1, two)->info().as_agreed);
  EXPECT_TRUE(within(1, "")->info().as_agreed) << "nobody has said what the others run";
}

TEST_F(WeightRecordTest, DamagedRecordsAreMeasuredAgain) {
  load();
  for (const std::string& damaged :
       {std::string(), std::string("prefill bf16"), std::string("prefill q9_9 2\ndecode file 1\nfrom 8\n"),
        std::string("prefill q4_0 2\ndecode file 1\nfrom 8\n"),
        std::string("prefill bf16 nan\ndecode file 1\nfrom 8\n"),
        std::string("prefill bf16 2\ndecode file 1\nfrom 7\n"), std::string("prefill bf16 2\ndecode file 1\nfrom 1\n"),
        std::string("prefill bf16 2\ndecode bf16 2\nfrom 8\n"),
        std::string("prefill bf16 2\ndecode file 1\nfrom 8 9\n"),
        std::string("decode bf16 2\nprefill file 1\nfrom 8\n"), std::string(1 << 20, 'x'), std::string(64, '\0')}) {
    replace(damaged);
    EXPECT_THAT(load()->info().prefill_weights, Not(HasSubstr("when first loaded"))) << damaged.substr(0, 64);
    EXPECT_NE(text(), damaged);
    EXPECT_THAT(load()->info().prefill_weights, HasSubstr("when first loaded")) << damaged.substr(0, 64);
  }
}

// The same processor may have fewer instruction sets, as in a virtual machine that was moved. oneDNN looks once a
// process, so this takes another.
TEST_F(WeightRecordTest, TypesThatTheProcessorCannotRunAreMeasuredAgain) {
  const std::string matter = weight_matter({1, 2}).hex();
  ::testing::Matcher<const std::string&> says_another = ::testing::_;
  if (PackedMatrix::available()) says_another = Not(HasSubstr(matter));
  const auto load_recorded = [&] {
    std::cerr << weight_matter({1, 2}).hex();
    load();
    const std::string recorded = "prefill bf16-packed 2\ndecode file 1\nfrom 8\n";
    replace(recorded);
    const auto agree = [&](const Hash128&, const std::string&) { return recorded; };
    const auto model = Model::load(path_, {.choices_folder = choices(), .agree = agree, .threads = 1});
    const bool measured = model && (*model)->info().prefill_weights.find("when first loaded") == std::string::npos;
    std::filesystem::remove_all(folder_.path());
    std::exit(measured ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("DNNL_MAX_CPU_ISA", "SSE41", 1);
  EXPECT_EXIT(load_recorded(), ::testing::ExitedWithCode(0), says_another);
  unsetenv("DNNL_MAX_CPU_ISA");
}

TEST_F(WeightRecordTest, AFolderThatCannotHoldRecordsCostsNothingElse) {
  std::filesystem::create_directory(folder_.path() / "cache");
  std::ofstream(choices()) << "a file where the folder should be";
  EXPECT_THAT(load()->info().prefill_weights, Not(HasSubstr("when first loaded")));

  std::filesystem::remove(choices());
  load();
  const auto place = record();
  std::filesystem::remove(place);
  std::filesystem::create_directories(place / "in the way");
  load();
  EXPECT_EQ(record(), place);  // and no temporary file left beside it
}

TEST_F(WeightRecordTest, OtherModelsAndThreadsHaveRecordsOfTheirOwn) {
  const auto place = [&](const Hash128& model, std::size_t threads) {
    return WeightRecordFile(choices(), model, threads).path();
  };
  EXPECT_EQ(place({1, 2}, 1), place({1, 2}, 1));
  EXPECT_NE(place({1, 2}, 1), place({1, 3}, 1));
  EXPECT_NE(place({1, 2}, 1), place({1, 2}, 2));
}

TEST_F(WeightRecordTest, TextsReadBackAsTheyWereWritten) {
  const std::vector<RunType> candidates = {RunType::kFile, RunType::kBf16, RunType::kBf16Packed, RunType::kQ8};
  const WeightRecord written{{RunType::kBf16Packed, 1.93}, {RunType::kQ8, 1.25}, 16};
  const auto record = WeightRecord::parse(written.text(), candidates);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->prefill.type, RunType::kBf16Packed);
  EXPECT_EQ(record->decode.type, RunType::kQ8);
  EXPECT_EQ(record->prefill_from, 16);
  EXPECT_DOUBLE_EQ(record->prefill.speed, 1.93);
}

}  // namespace
}  // namespace shale
