#include "tier/tier_url.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/parsing.h"

namespace shale {
namespace {

constexpr std::string_view kHidden = "***";
constexpr std::string_view kSecrets[] = {"password", "secret", "token", "key"};  // how names of options end

// ASCII alone, whatever the locale.
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Length of the scheme that the text begins with, its colon left out; 0 where it begins with none.
std::size_t scheme_length(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return 0;
  std::size_t end = 1;
  while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]) || text[end] == '+' || text[end] == '-')) {
    ++end;
  }
  return end < text.size() && text[end] == ':' ? end : 0;
}

// Splits at the first `mark`; all of it, and nothing, where there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

Result<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 1 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return fail(ErrorCode::kInvalidArgument,
                    "it has a % without two hexadecimal digits behind it: write %25 for a percent sign");
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c)) return fail(ErrorCode::kInvalidArgument, "it holds a control character");
    plain += c;
  }
  return plain;
}

Result<TierUrl::Option> parse_option(std::string_view text) {
  const auto [name, value] = split(text, '=');
  TierUrl::Option option;
  SHALE_ASSIGN(option.name, decoded(name));
  SHALE_ASSIGN(option.value, decoded(value));
  if (option.name.empty()) {
    return fail(ErrorCode::kInvalidArgument, "it has an option without a name: write name=value, with & between two");
  }
  if (text.find('=') == std::string_view::npos) option.value = "on";
  return option;
}

Result<TierUrl> parse(std::string_view text) {
  const std::size_t scheme = scheme_length(text);
  if (scheme == 0) return fail(ErrorCode::kInvalidArgument, "it begins with no scheme, as file: or memory:");
  TierUrl url;
  url.scheme = text.substr(0, scheme);
  std::ranges::transform(url.scheme, url.scheme.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (text.find('#') != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "it has a fragment, which names nothing here: write %23 for a #");
  }
  auto [place, query] = split(text.substr(scheme + 1), '?');
  if (place.starts_with("//")) {
    place.remove_prefix(2);
    const std::size_t path = std::min(place.find('/'), place.size());
    SHALE_ASSIGN(url.authority, decoded(place.substr(0, path)));
    place.remove_prefix(path);
  }
  SHALE_ASSIGN(url.path, decoded(place));
  while (!query.empty()) {
    const auto [first, rest] = split(query, '&');
    SHALE_ASSIGN(TierUrl::Option option, parse_option(first));
    if (std::ranges::find(url.options, option.name, &TierUrl::Option::name) != url.options.end()) {
      return fail(ErrorCode::kInvalidArgument, "it gives the option '{}' twice", option.name);
    }
    url.options.push_back(std::move(option));
    query = rest;
  }
  return url;
}

// Where a password begins and ends; nothing where there is none. Whoever writes one there may not know that its / and ?
// are to be encoded, so that it ends at the last @, unless a port and an option's name are before that.
std::optional<std::pair<std::size_t, std::size_t>> find_password(std::string_view url) {
  const std::size_t scheme = scheme_length(url);
  const std::size_t at = url.rfind('@');
  if (!url.substr(scheme).starts_with("://") || at == std::string_view::npos) return std::nullopt;
  const std::size_t user = scheme + 3;
  const std::size_t host_end = url.substr(user).starts_with('[') ? std::min(url.find(']', user), at) : user;
  const std::size_t colon = url.find_first_of(":/?", host_end);
  const std::size_t encoded = std::min(url.find("%3a", user), url.find("%3A", user));
  if (encoded < std::min(colon, at)) return std::pair(encoded + 3, at);
  if (colon >= at || url[colon] != ':') return std::nullopt;
  const std::size_t behind_digits = url.find_first_not_of("0123456789", colon + 1);
  const bool port = behind_digits > colon + 1 && (url[behind_digits] == '/' || url[behind_digits] == '?');
  const std::string_view query = split(url.substr(0, at), '?').second;
  if (port && query.find('=') != std::string_view::npos) return std::nullopt;
  return std::pair(colon + 1, at);
}

void hide_password(std::string& url) {
  const auto password = find_password(url);
  if (password) url.replace(password->first, password->second - password->first, kHidden);
}

}  // namespace

Result<TierUrl> parse_tier_url(std::string_view text) {
  auto url = parse(text);
  if (!url) return fail_in(fmt::format("tier '{}'", without_secrets(text)), std::move(url).error());
  return url;
}

std::string without_secrets(std::string_view url) {
  std::string shown(url);
  hide_password(shown);
  for (std::size_t begin = std::min(shown.find('?'), shown.size()); begin < shown.size();) {
    const std::size_t end = std::min(shown.find('&', begin + 1), shown.size());
    const std::string_view option = std::string_view(shown).substr(begin + 1, end - begin - 1);
    const auto [name, given] = split(option, '=');
    const bool secret = std::ranges::any_of(kSecrets, [&](std::string_view word) { return name.ends_with(word); });
    std::string value(given);
    if (secret && !value.empty()) value = kHidden;
    hide_password(value);
    shown.replace(end - given.size(), given.size(), value);
    begin = std::min(shown.find('&', begin + 1), shown.size());
  }
  return shown;
}

bool has_password(std::string_view url) { return find_password(url).has_value(); }

std::vector<std::string_view> split_tier_urls(std::string_view list) {
  std::vector<std::string_view> urls;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] != ',' || scheme_length(trimmed(list.substr(i + 1))) == 0)) continue;
    urls.push_back(trimmed(list.substr(start, i - start)));
    start = i + 1;
  }
  return urls;
}

}  // namespace shale
