// A tier is named by a URL: scheme:[//authority]path[?option=value&option=value].
//
//   memory:?size=1GiB
//   file:///var/cache/shale?size=8GiB&direct_io=off
//   dir:///mnt/shared?name=nas&throttle=nfs-1g
//
// Names and values are percent-decoded (RFC 3986); '+' stands for itself. An option without a value is on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

struct TierUrl {
  struct Option {
    std::string name;
    std::string value;
  };
  std::string scheme;     // lower case
  std::string authority;  // what stands between "//" and the path: empty for a path of this machine
  std::string path;
  std::vector<Option> options;  // as given, no name twice
};

// kInvalidArgument says what is wrong with it: no scheme, a bad percent-encoding, control characters, a fragment, an
// option given twice or without a name. Which schemes and options there are is tiers.h's to know.
Result<TierUrl> parse_tier_url(std::string_view text);

// Whether a password stands before its host, encoded as it is to be or not.
bool has_password(std::string_view url);

// The URL for messages: *** stands for a password before the host, and for the values of options that sound like one.
std::string without_secrets(std::string_view url);

// The URLs of a comma-separated list, white space around them cut off. A comma before a scheme ends a URL; any other is
// part of it, as in "throttle=200MB/s,8ms".
std::vector<std::string_view> split_tier_urls(std::string_view list);

}  // namespace shale
