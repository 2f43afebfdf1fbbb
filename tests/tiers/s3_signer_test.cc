#include "io/s3_signer.h"

#include <gtest/gtest.h>

namespace shale::testing {
namespace {

constexpr std::string_view kSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string signature_in(const HttpHeaders& headers) {
  const std::string& authorization = headers.back().second;
  return authorization.substr(authorization.find("Signature=") + 10);
}

// Of AWS' "aws-sig-v4-test-suite": service "service", 2015-08-30 12:36:00.
std::string suite_signature(std::string_view method, std::string_view path,
                            const std::vector<std::pair<std::string, std::string>>& parameters,
                            HttpHeaders headers = {}, std::string_view body = {}, std::string token = {}) {
  headers.insert(headers.begin(), {"Host", "example.amazonaws.com"});
  const std::string encoded = uri_encoded(path, true), query = canonical_query(parameters), hash = sha256_hex(body);
  sign({method, encoded, query, hash}, {"us-east-1", "service"},
       {"AKIDEXAMPLE", std::string(kSecret), std::move(token)}, 1440938160, headers);
  return signature_in(headers);
}

TEST(S3Signer, AgreesWithThePublishedSuite) {
  EXPECT_EQ(suite_signature("GET", "/", {}), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(suite_signature("GET", "/", {{"Param2", "value2"}, {"Param1", "value1"}}),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(suite_signature("GET", "/", {{"Param1", "value1"}}),
            "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb");
  EXPECT_EQ(suite_signature("GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", {}),
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
  EXPECT_EQ(suite_signature("GET", "/\u1234", {}), "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  EXPECT_EQ(suite_signature("GET", "/example space/", {}),
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741");
  EXPECT_EQ(suite_signature("GET", "//example//", {}),
            "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5")
      << "paths are not normalised";
  EXPECT_EQ(suite_signature("POST", "/", {}), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
}

// Of "Examples: Signature Calculations" in the S3 reference: 2013-05-24.
std::string example_signature(std::string_view method, std::string_view path,
                              const std::vector<std::pair<std::string, std::string>>& parameters, HttpHeaders headers,
                              std::string_view payload) {
  headers.emplace_back("x-amz-content-sha256", payload);
  headers.emplace_back("Host", "examplebucket.s3.amazonaws.com");
  const std::string encoded = uri_encoded(path, true), query = canonical_query(parameters);
  sign({method, encoded, query, payload}, {"us-east-1"},
       {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""}, 1369353600, headers);
  return signature_in(headers);
}

TEST(S3Signer, AgreesWithTheExamplesOfS3) {
  EXPECT_EQ(example_signature("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}, kNothing),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(
      example_signature("PUT", "/test$file.text", {},
                        {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                        sha256_hex("Welcome to Amazon S3.")),
      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(example_signature("GET", "/", {{"lifecycle", ""}}, {}, kNothing),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")
      << "a parameter without a value";
  EXPECT_EQ(example_signature("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, kNothing),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")
      << "parameters in another order";
}

TEST(S3Signer, EncodesWhatIsReservedAndSortsWhatIsEncoded) {
  EXPECT_EQ(uri_encoded("a=b,c:d@e f+g%/\xc3\xa4", true), "a%3Db%2Cc%3Ad%40e%20f%2Bg%25/%C3%A4");
  EXPECT_EQ(uri_encoded("a/b", false), "a%2Fb");
  EXPECT_EQ(canonical_query({{"b", ""}, {"a", "2"}, {"a", "1"}, {"A", "/="}}), "A=%2F%3D&a=1&a=2&b=");
  EXPECT_EQ(canonical_query({}), "");
}

TEST(S3Signer, HeadersCountWhateverTheirOrderCaseAndSpaces) {
  const std::string one = suite_signature("GET", "/", {}, {{"My-Header1", "value4"}, {"my-header2", "a   b  c"}});
  EXPECT_EQ(suite_signature("GET", "/", {}, {{"MY-HEADER2", " a b c "}, {"My-Header1", "  value4"}}), one);
  EXPECT_NE(suite_signature("GET", "/", {}, {{"My-Header1", "value4"}, {"My-Header2", "a b d"}}), one);
}

TEST(S3Signer, ASessionsTokenIsSentAndSigned) {
  HttpHeaders headers = {{"Host", "example.amazonaws.com"}};
  sign({.method = "POST", .payload = kNothing}, {"us-east-1", "service"},
       {"AKIDEXAMPLE", std::string(kSecret),
        "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8"
        "YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6f"
        "E8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj"
        "2ICCR/oLxBA=="},
       1440938160, headers);
  EXPECT_EQ(headers[2].first, "x-amz-security-token");
  EXPECT_EQ(signature_in(headers), "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
}

}  // namespace
}  // namespace shale::testing
