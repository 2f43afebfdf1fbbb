// What the AWS tools would use: from the environment, else from the files that `aws configure` writes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "io/s3_signer.h"

namespace shale {

struct S3Setup {
  S3Credentials credentials;  // never printed
  std::string region;         // empty: not said
  std::string endpoint;       // empty: not said
  std::string found;          // where the credentials are from, for messages: "the environment", "profile 'x' of …"
};

// The value of an environment variable, none where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

// Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, unless `profile` is named; else those of
// the profile (AWS_PROFILE, "default") in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) or AWS_CONFIG_FILE
// (~/.aws/config). Region: AWS_REGION, AWS_DEFAULT_REGION, the profile's. Endpoint: AWS_ENDPOINT_URL_S3,
// AWS_ENDPOINT_URL, the profile's endpoint_url. kInvalidArgument: there are none, or only half of one; what to do.
Result<S3Setup> find_s3_setup(std::string_view profile, const Environment& environment = process_environment);

}  // namespace shale
