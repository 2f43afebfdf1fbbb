// Tiers by their URLs: any text is an error, or a tier a URL, each with a name of its own and of a scheme that exists.
#include <algorithm>
#include <set>
#include <string>

#include "input.h"
#include "tier/tier_url.h"
#include "tiers/tiers.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace shale;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string_view> urls = split_tier_urls(text);
  for (const std::string_view url : urls) (void)parse_tier_url(url);
  const auto specs = parse_tiers(urls);
  if (!specs) {
    check(!specs.error().message.empty());
    return 0;
  }
  check(specs->size() == urls.size());
  std::set<std::string> names;
  for (const TierSpec& spec : *specs) {
    check(spec.name != "pool" && names.insert(spec.name).second);
    const auto schemes = tier_schemes();
    const auto scheme = std::ranges::find(schemes, spec.scheme, &TierScheme::scheme);
    check(scheme != schemes.end());
    check(spec.place.empty() == (scheme->place != TierScheme::Place::kFolder));
    check(spec.server.empty() == (scheme->place != TierScheme::Place::kServer));
    for (const TierScheme::Flag& flag : scheme->flags) (void)spec.flag(flag.name);
    for (const TierScheme::Text& option : scheme->texts) (void)spec.text(option.name);
  }
  return 0;
}
