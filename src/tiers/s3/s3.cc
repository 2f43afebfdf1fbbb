// s3://bucket/prefix: the tier's URL.
#include <algorithm>

#include "core/units.h"
#include "io/s3_credentials.h"
#include "tier/tier_url.h"
#include "tiers/s3/s3_tier.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

constexpr std::string_view kRegionUnset = "us-east-1";

Status check_bucket(std::string_view bucket) {
  const bool plain = std::ranges::all_of(
      bucket, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; });
  if (plain && bucket.size() >= 3 && bucket.size() <= 63) return {};
  return fail(ErrorCode::kInvalidArgument,
              "'{}' is no bucket's name, which has 3 to 63 lower-case letters, digits, - and .", bucket);
}

Status check_endpoint(std::string_view endpoint) {
  const std::size_t host = endpoint.find("://");
  const bool plain = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  if (plain && endpoint.size() > host + 3 && endpoint.substr(host + 3).find_first_of("/?#@ ") == endpoint.npos)
    return {};
  return fail(ErrorCode::kInvalidArgument, "'{}' is no endpoint: write http://host:port or https://host[:port]",
              without_secrets(endpoint));
}

Result<double> timeout_of(const TierSpec& spec) {
  auto seconds = parse_duration(spec.text("timeout"));
  if (!seconds) return fail_in("timeout", seconds.error());
  if (*seconds > 0) return *seconds;
  return fail(ErrorCode::kInvalidArgument, "timeout: nothing is done in no time: write as 10s");
}

Status check_s3(const TierSpec& spec) {
  SHALE_TRY(check_bucket(spec.server));
  if (!spec.text("endpoint").empty()) SHALE_TRY(check_endpoint(spec.text("endpoint")));
  SHALE_TRY(timeout_of(spec));
  return {};
}

Result<std::unique_ptr<Tier>> make(const TierSpec& spec, const Clock& clock) {
  SHALE_ASSIGN(S3Setup setup, find_s3_setup(spec.text("profile")));
  const auto or_else = [](std::string wanted, std::string other) { return wanted.empty() ? other : wanted; };
  S3TierOptions options;
  options.name = spec.name;
  options.capacity_bytes = spec.capacity_bytes;
  options.prefix = spec.path.empty() ? "" : spec.path + "/";
  options.client.bucket = spec.server;
  options.client.endpoint = or_else(spec.text("endpoint"), setup.endpoint);
  if (!options.client.endpoint.empty()) SHALE_TRY(check_endpoint(options.client.endpoint));
  options.client.region = or_else(spec.text("region"), or_else(setup.region, std::string(kRegionUnset)));
  options.client.credentials = std::move(setup.credentials);
  options.client.credentials_from = std::move(setup.found);
  options.client.credentials_now = [profile = spec.text("profile")]() -> std::optional<S3Credentials> {
    auto now = find_s3_setup(profile);
    if (!now) return std::nullopt;
    return std::move(now->credentials);
  };
  options.client.ca_file = spec.text("ca");
  SHALE_ASSIGN(options.client.timeout_s, timeout_of(spec));
  return S3Tier::make(std::move(options), spec.late, clock);
}

}  // namespace

TierScheme s3_scheme() {
  return {.name = "s3",
          .meaning = "objects of a bucket that many machines share; credentials as the AWS tools find them",
          .place = TierScheme::Place::kServer,
          .server_example = "//bucket/prefix",
          .texts = {{"endpoint", "URL", "", "of a server that is not AWS'; then the bucket is part of the path"},
                    {"region", "NAME", "", "of the bucket; else what the AWS tools find, or us-east-1"},
                    {"profile", "NAME", "", "of ~/.aws/credentials, in place of the environment's credentials"},
                    {"ca", "FILE", "", "certificates that the server's may be signed by, in place of the system's"},
                    {"timeout", "TIME", "10s", "in which a request is done, with all its attempts"}},
          .check = check_s3,
          .make = make};
}

}  // namespace shale
