#include "io/s3_signer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

namespace shale {
namespace {

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

std::string hex(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

Digest hmac(std::string_view key, std::string_view text) {
  Digest digest;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest.data(), nullptr);
  return digest;
}

Digest hmac(const Digest& key, std::string_view text) {
  return hmac(std::string_view(reinterpret_cast<const char*>(key.data()), key.size()), text);
}

bool is_unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

// The value without spaces around it, and with one in place of several.
std::string squeezed(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' || (!text.empty() && text.back() != ' ')) text += c;
  }
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// Headers by lower-case name; the values of one that is there several times are joined by commas.
std::map<std::string, std::string> canonical_headers(const HttpHeaders& headers) {
  std::map<std::string, std::string> canonical;
  for (const auto& [name, value] : headers) {
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const auto [at, fresh] = canonical.try_emplace(std::move(lower), squeezed(value));
    if (!fresh) at->second.append(",").append(squeezed(value));
  }
  return canonical;
}

}  // namespace

std::string uri_encoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    if (is_unreserved(c) || (keep_slashes && c == '/')) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : parameters) {
    encoded.emplace_back(uri_encoded(name, false), uri_encoded(value, false));
  }
  std::ranges::sort(encoded);
  std::string query;
  for (const auto& [name, value] : encoded) query += (query.empty() ? "" : "&") + name + "=" + value;
  return query;
}

std::string sha256_hex(std::span<const std::span<const std::byte>> pieces) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  for (const auto& piece : pieces) EVP_DigestUpdate(context.get(), piece.data(), piece.size());
  Digest digest;
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  return hex(digest);
}

std::string sha256_hex(std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  return sha256_hex(std::span(&piece, 1));
}

void sign(const S3SignedParts& parts, const S3Scope& scope, const S3Credentials& credentials, std::time_t time,
          HttpHeaders& headers) {
  const std::tm utc = fmt::gmtime(time);
  const std::string stamp = fmt::format("{:%Y%m%dT%H%M%SZ}", utc), day = stamp.substr(0, 8);
  headers.emplace_back("x-amz-date", stamp);
  if (!credentials.session_token.empty()) headers.emplace_back("x-amz-security-token", credentials.session_token);

  std::string header_lines, names;
  for (const auto& [name, value] : canonical_headers(headers)) {
    header_lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string request =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", parts.method, parts.path, parts.query, header_lines, names, parts.payload);
  const std::string where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, where, sha256_hex(request));
  const Digest key =
      hmac(hmac(hmac(hmac("AWS4" + credentials.secret_key, day), scope.region), scope.service), "aws4_request");
  headers.emplace_back("Authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                                    credentials.access_key, where, names, hex(hmac(key, to_sign))));
}

}  // namespace shale
