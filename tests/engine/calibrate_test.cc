#include "engine/calibrate.h"

#include <gtest/gtest.h>

#include "support/gguf_writer.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

TEST(CalibrateCachegen, RefusesAModelThatItCannotCodeBeforeItComputes) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  testing::write_tiny_model({.head_dim = 40}, path);
  const auto model = Model::load(path, {.weights = WeightChoice::kFile, .threads = 1}).value();
  const std::vector<Token> tokens(100, 'a');
  const auto computes = [](std::size_t, std::size_t) {
    ADD_FAILURE();
    return false;
  };
  const auto tables = calibrate_cachegen(*model, tokens, {}, computes);
  ASSERT_FALSE(tables);
  EXPECT_EQ(tables.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace shale
