#include "runtime/model_registry.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace shale {
namespace {

class ModelRegistryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "shale-models-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("SHALE_MODEL_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("SHALE_MODEL_DIR");
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
};

TEST_F(ModelRegistryTest, TheTableIsWhole) {
  const auto& models = named_models();
  ASSERT_FALSE(models.empty());
  EXPECT_EQ(models.front().name, "smollm2-135m");
  for (const NamedModel& model : models) {
    EXPECT_EQ(model.is_default, &model == &models.front());
    EXPECT_EQ(model.sha256.size(), 64u) << model.name;
    EXPECT_GT(model.bytes, 0u) << model.name;
    EXPECT_FALSE(model.about.empty() || model.architecture.empty() || model.licence.empty()) << model.name;
  }
}

TEST_F(ModelRegistryTest, ResolvesANameOnceItIsFetched) {
  const auto missing = resolve_model("smollm2-135m");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("shale model fetch smollm2-135m"), std::string::npos);

  const auto file = folder_ / "smollm2-135m.gguf";
  std::ofstream(file) << "GGUF";
  EXPECT_EQ(resolve_model("smollm2-135m").value(), file);
}

TEST_F(ModelRegistryTest, ResolvesAPath) {
  const auto file = folder_ / "mine.bin";
  std::ofstream(file) << "GGUF";
  EXPECT_EQ(resolve_model(file.string()).value(), file);
  EXPECT_EQ(resolve_model((folder_ / "absent").string()).error().code, ErrorCode::kNotFound);
}

TEST_F(ModelRegistryTest, AModelIsServedUnderItsWholeName) {
  for (const NamedModel& model : named_models()) EXPECT_EQ(served_name(model.name), model.name);
  EXPECT_EQ(served_name("/models/mine-0.5b-q8_0.gguf"), "mine-0.5b-q8_0");
  EXPECT_EQ(served_name("mine-0.5b"), "mine-0.5b");
}

TEST_F(ModelRegistryTest, AnUnknownNameListsTheKnownOnes) {
  const auto unknown = resolve_model("gpt-17");
  ASSERT_FALSE(unknown);
  for (const NamedModel& model : named_models()) {
    EXPECT_NE(unknown.error().message.find(model.name), std::string::npos) << unknown.error().message;
  }
  EXPECT_FALSE(fetch_command("gpt-17"));
}

TEST_F(ModelRegistryTest, TheFetchCommandNamesAToolThatExists) {
  const auto command = fetch_command("gemma3-270m");
  ASSERT_TRUE(command);
  EXPECT_TRUE(std::filesystem::exists((*command)[1])) << (*command)[1];
  EXPECT_EQ(command->back(), folder_);
}

}  // namespace
}  // namespace shale
