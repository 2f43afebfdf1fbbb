// AWS Signature Version 4, as S3 wants it: paths are encoded once and never normalised. ("Signature Version 4 signing
// process", docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html)
#pragma once

#include <cstddef>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/http_client.h"

namespace shale {

struct S3Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of temporary credentials; else empty
  bool operator==(const S3Credentials&) const = default;
};

// Takes the place of a body's hash where TLS protects it.
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

struct S3SignedParts {
  std::string_view method = "GET";
  std::string_view path = "/";                  // as it is sent: uri_encoded
  std::string_view query = {};                  // as it is sent: canonical_query
  std::string_view payload = kUnsignedPayload;  // or sha256_hex of the body
};

struct S3Scope {
  std::string region;
  std::string service = "s3";
};

// Every byte but A-Z a-z 0-9 - . _ ~ becomes %XX; '/' stays where `keep_slashes`.
std::string uri_encoded(std::string_view text, bool keep_slashes);

// "a=1&b=": encoded and sorted, with '=' behind every name. Send it as it is.
std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& parameters);

// Lower-case hexadecimal digits; of several pieces that follow one another.
std::string sha256_hex(std::span<const std::span<const std::byte>> pieces);
std::string sha256_hex(std::string_view text);

// Appends x-amz-date, x-amz-security-token where there is one, and Authorization, which signs all `headers`: Host must
// be among them, and no header may be added behind it that begins with x-amz-. `time` is in seconds since 1970.
void sign(const S3SignedParts& parts, const S3Scope& scope, const S3Credentials& credentials, std::time_t time,
          HttpHeaders& headers);

}  // namespace shale
