#include "io/s3_credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>

#include "support/s3_server.h"
#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

class S3CredentialsTest : public ::testing::Test {
 protected:
  S3CredentialsTest() {
    std::filesystem::create_directories(folder_.path() / ".aws");
    environment_["HOME"] = folder_.path();
  }
  void write(const char* name, std::string_view text) const { std::ofstream(folder_.path() / ".aws" / name) << text; }
  Result<S3Setup> find(std::string_view profile = {}) const {
    return find_s3_setup(profile, [this](const char* name) -> std::optional<std::string> {
      const auto at = environment_.find(name);
      return at == environment_.end() ? std::nullopt : std::optional(at->second);
    });
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;
};

TEST_F(S3CredentialsTest, TheEnvironmentComesFirst) {
  write("credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = file-secret\n");
  environment_.insert({{"AWS_ACCESS_KEY_ID", "a"}, {"AWS_SECRET_ACCESS_KEY", "s"}, {"AWS_SESSION_TOKEN", "t"}});
  environment_.insert({{"AWS_REGION", "eu-west-1"}, {"AWS_ENDPOINT_URL", "http://here:1"}});
  const auto setup = find().value();
  EXPECT_EQ(setup.credentials.access_key, "a");
  EXPECT_EQ(setup.credentials.secret_key, "s");
  EXPECT_EQ(setup.credentials.session_token, "t");
  EXPECT_EQ(setup.region, "eu-west-1");
  EXPECT_EQ(setup.endpoint, "http://here:1");
  EXPECT_EQ(find("default")->credentials.access_key, "file") << "a profile that was named comes before it";
}

TEST_F(S3CredentialsTest, ProfilesOfBothFiles) {
  write("credentials",
        "# comment\n[default]\naws_access_key_id=d\naws_secret_access_key=ds==\n\n"
        "[ work ]\naws_access_key_id = w\naws_secret_access_key = ws\naws_session_token = wt\n");
  write("config",
        "[default]\nregion = us-west-2\n[profile work]\nregion = eu-central-1\nendpoint_url = http://minio:9000\n"
        "s3 =\n  addressing_style = path\n[profile other]\naws_access_key_id = o\naws_secret_access_key = os\n");
  EXPECT_EQ(find()->credentials.secret_key, "ds==");
  EXPECT_EQ(find()->region, "us-west-2");
  EXPECT_EQ(find("other")->credentials.access_key, "o");
  environment_["AWS_PROFILE"] = "work";
  EXPECT_EQ(find()->credentials.session_token, "wt");
  EXPECT_EQ(find()->region, "eu-central-1");
  EXPECT_EQ(find()->endpoint, "http://minio:9000");
  environment_["AWS_SHARED_CREDENTIALS_FILE"] = folder_.path() / "nowhere";
  EXPECT_EQ(code_of(find()), ErrorCode::kInvalidArgument);
}

TEST_F(S3CredentialsTest, WhatIsMissingIsSaidAndNoSecretIs) {
  EXPECT_NE(find().error().message.find("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), std::string::npos);
  EXPECT_NE(find("work").error().message.find("[work]"), std::string::npos);
  environment_["AWS_SECRET_ACCESS_KEY"] = "hush";
  const std::string message = find().error().message;
  EXPECT_NE(message.find("AWS_ACCESS_KEY_ID is not"), std::string::npos) << message;
  EXPECT_EQ(message.find("hush"), std::string::npos);
}

// The server takes another token from some time on; the test's bucket knows no tokens, so that it is told what is
// right.
TEST_F(S3CredentialsTest, ATierTakesThoseThatReplaceWhatExpired) {
  S3Server server;
  const auto file = folder_.path() / ".aws" / "credentials";
  const std::string keys = "[temporary]\naws_access_key_id=shale\naws_secret_access_key=shale-secret\n";
  write("credentials", keys);
  setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  const RealClock clock;
  std::atomic<unsigned> refused = 0;
  const auto tier = make_tier(server.url("x", "&profile=temporary"), clock).value();
  server.set_fault([&](const S3Asked& asked, const S3Answer&) {
    const auto token = asked.headers.find("x-amz-security-token");
    if (token != asked.headers.end() && token->second == "new") return S3Answer{.status = 200};
    ++refused;
    return S3Answer{400, "<Error><Code>ExpiredToken</Code><Message>It has expired.</Message></Error>"};
  });
  write("credentials", keys + "aws_session_token=new\n");
  std::vector<std::shared_ptr<TierWrite>> writes;
  for (std::uint32_t part = 0; part < 8; ++part) {
    writes.push_back(tier->write(blob_id(1, part), blob_bytes(blob_id(1, part), 10)));
  }
  for (const auto& put : writes) {
    const Status stored = put->wait();
    EXPECT_TRUE(stored) << stored.error().message;
  }
  unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  EXPECT_LE(refused, 8u) << "each once at most";
}

}  // namespace
}  // namespace shale::testing
