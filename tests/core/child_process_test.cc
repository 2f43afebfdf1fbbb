#include "core/child_process.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

namespace shale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChildProcess, HasTheEnvironmentWithoutTheUsersOptions) {
  const char* models = std::getenv("SHALE_MODEL_DIR");
  setenv("SHALE_MODEL_DIR", models ? models : "/models", 1);
  setenv("SHALE_REMOTE", "/shared", 1);
  setenv("SHALE_CONFIG", "/config.toml", 1);
  const auto environment = run_child({"env"});
  for (const char* name : {"SHALE_REMOTE", "SHALE_CONFIG"}) unsetenv(name);
  if (!models) unsetenv("SHALE_MODEL_DIR");
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_THAT(*environment, HasSubstr("PATH="));
  EXPECT_THAT(*environment, HasSubstr("SHALE_MODEL_DIR="));
  EXPECT_THAT(*environment, HasSubstr("SHALE_CONFIG=/dev/null\n"));
  EXPECT_THAT(*environment, Not(HasSubstr("SHALE_REMOTE")));
  EXPECT_THAT(*environment, Not(HasSubstr("/config.toml")));
}

}  // namespace
}  // namespace shale
