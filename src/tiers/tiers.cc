#include "tiers/tiers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "core/units.h"
#include "tier/tier_url.h"

namespace shale {
namespace {

struct TierEntry {
  std::string_view scheme;
  TierScheme (*describe)();
};

#define SHALE_ENTRY(name) TierEntry{#name, name##_scheme},
constexpr auto kTiers = std::to_array<TierEntry>({SHALE_TIERS(SHALE_ENTRY)});
#undef SHALE_ENTRY

constexpr std::string_view kEveryTierHas[] = {"name", "size", "throttle"};
constexpr std::string_view kReserved = "pool";  // what reports call the engine's own memory
constexpr std::size_t kNameLengthMax = 32;

Result<TierScheme> find_scheme(std::string_view scheme) {
  const std::vector<TierScheme> schemes = tier_schemes();
  const auto found = std::ranges::find(schemes, scheme, &TierScheme::scheme);
  if (found != schemes.end()) return *found;
  std::vector<std::string> examples;
  for (const TierScheme& known : schemes) examples.push_back(known.example());
  return fail(ErrorCode::kInvalidArgument, "no tier is called '{}:'; there are {}", scheme, fmt::join(examples, ", "));
}

// Names stand in file names, labels and JSON.
Status check_name(std::string_view name) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!plain || name.empty() || name.size() > kNameLengthMax) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not a name: write 1 to {} letters, digits, - and _", name,
                kNameLengthMax);
  }
  if (name == kReserved)
    return fail(ErrorCode::kInvalidArgument, "'{}' is what the engine's own memory is called", name);
  return {};
}

Result<bool> parse_flag(std::string_view text) {
  if (text == "on" || text == "true" || text == "1") return true;
  if (text == "off" || text == "false" || text == "0") return false;
  return fail(ErrorCode::kInvalidArgument, "'{}' is neither on nor off", text);
}

Result<std::uint64_t> parse_size(std::string_view text) {
  if (text == "unlimited") return kUnlimited;
  return parse_bytes(text);
}

Status take_option(const TierScheme& scheme, const TierUrl::Option& option, TierSpec& spec) {
  if (option.name == "name") {
    SHALE_TRY(check_name(option.value));
    spec.name = option.value;
  } else if (option.name == "size") {
    SHALE_ASSIGN(spec.capacity_bytes, parse_size(option.value));
  } else if (option.name == "throttle") {
    SHALE_ASSIGN(spec.throttle, parse_throttle(option.value));
  } else if (std::ranges::find(scheme.flags, option.name, &TierScheme::Flag::name) != scheme.flags.end()) {
    SHALE_ASSIGN(const bool on, parse_flag(option.value));
    spec.flags.emplace_back(option.name, on);
  } else if (std::ranges::find(scheme.texts, option.name, &TierScheme::Text::name) != scheme.texts.end()) {
    spec.texts.emplace_back(option.name, option.value);
  } else {
    std::vector<std::string_view> known(std::begin(kEveryTierHas), std::end(kEveryTierHas));
    for (const TierScheme::Flag& flag : scheme.flags) known.push_back(flag.name);
    for (const TierScheme::Text& text : scheme.texts) known.push_back(text.name);
    return fail(ErrorCode::kInvalidArgument, "{}: has no such option; there are {}", scheme.scheme,
                fmt::join(known, ", "));
  }
  return {};
}

Status take_server(const TierScheme& scheme, const TierUrl& url, TierSpec& spec) {
  if (url.authority.empty()) {
    return fail(ErrorCode::kInvalidArgument, "it names no server: write {}", scheme.example());
  }
  spec.server = url.authority;
  spec.path = url.path.substr(std::min<std::size_t>(1, url.path.size()));
  while (spec.path.ends_with('/')) spec.path.pop_back();
  return {};
}

Status take_place(const TierScheme& scheme, const TierUrl& url, TierSpec& spec) {
  if (scheme.place == TierScheme::Place::kNone) {
    if (url.authority.empty() && url.path.empty()) return {};
    return fail(ErrorCode::kInvalidArgument, "{}: lies nowhere: write {}", scheme.scheme, scheme.example());
  }
  if (scheme.place == TierScheme::Place::kServer) return take_server(scheme, url, spec);
  if (!url.authority.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "its path begins where a host does: write {} with three slashes, or {}:folder for one of the working "
                "directory",
                scheme.example(), scheme.scheme);
  }
  if (url.path.empty()) return fail(ErrorCode::kInvalidArgument, "it names no folder: write {}", scheme.example());
  spec.place = url.path;
  return {};
}

// Without a name where the URL gives none.
Result<TierSpec> parse_spec(std::string_view text) {
  SHALE_ASSIGN(const TierUrl url, parse_tier_url(text));
  const auto parse = [&]() -> Result<TierSpec> {
    SHALE_ASSIGN(const TierScheme scheme, find_scheme(url.scheme));
    if (has_password(text)) {
      return fail(ErrorCode::kInvalidArgument,
                  "it holds a password, which all on this machine can see: name a file that holds it, or set it in the "
                  "environment");
    }
    TierSpec spec{.scheme = url.scheme, .name = {}, .place = {}};
    SHALE_TRY(take_place(scheme, url, spec));
    bool sized = false;
    for (const TierUrl::Option& option : url.options) {
      if (Status taken = take_option(scheme, option, spec); !taken) return fail_in(option.name, taken.error());
      sized |= option.name == "size";
    }
    if (scheme.size_required && !sized) {
      return fail(ErrorCode::kInvalidArgument, "it needs a size: write {}, or size=unlimited", scheme.example());
    }
    if (scheme.check) SHALE_TRY(scheme.check(spec));
    return spec;
  };
  auto spec = parse();
  if (!spec) return fail_in(fmt::format("tier '{}'", without_secrets(text)), std::move(spec).error());
  return spec;
}

bool has_name(const std::vector<TierSpec>& specs, std::string_view name) {
  return std::ranges::find(specs, name, &TierSpec::name) != specs.end();
}

// "disk", "disk2", "disk3": adding a tier renames none before it.
void name_the_nameless(std::vector<TierSpec>& specs) {
  for (TierSpec& spec : specs) {
    if (!spec.name.empty()) continue;
    const std::string base(find_scheme(spec.scheme)->name);
    std::string name = base;
    for (int number = 2; has_name(specs, name); ++number) name = fmt::format("{}{}", base, number);
    spec.name = std::move(name);
  }
}

template <class Value>
std::optional<Value> given(const std::vector<std::pair<std::string, Value>>& options, std::string_view wanted) {
  const auto found = std::ranges::find(options, wanted, &std::pair<std::string, Value>::first);
  return found == options.end() ? std::nullopt : std::optional(found->second);
}

// What two URLs of one place have in common, however they write it; empty where the scheme has none. Links are not
// followed: a mount that hangs would hold up whoever looks.
std::string place_of(const TierSpec& spec) {
  if (!spec.place.empty()) {
    std::error_code error;  // there may be no current folder any more
    const std::filesystem::path whole = std::filesystem::absolute(spec.place, error);
    return ((error ? std::filesystem::path(spec.place) : whole) / "").lexically_normal().string();
  }
  if (spec.server.empty()) return {};
  const Result<TierScheme> scheme = find_scheme(spec.scheme);
  assert(scheme);
  return scheme->place_of ? scheme->place_of(spec) : fmt::format("{}/{}", spec.server, spec.path);
}

}  // namespace

Status check_distinct(const std::vector<TierSpec>& specs) {
  for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
    for (auto other = specs.begin(); other != spec; ++other) {
      if (!spec->name.empty() && other->name == spec->name) {
        return fail(ErrorCode::kInvalidArgument, "two tiers are called '{}': give one another name", spec->name);
      }
      const std::string place = place_of(*spec);
      if (place.empty() || place != place_of(*other)) continue;
      if (spec->server.empty()) {
        return fail(ErrorCode::kInvalidArgument, "two tiers lie in '{}': give one another folder", spec->place);
      }
      return fail(ErrorCode::kInvalidArgument, "two tiers lie in '{}/{}': give one another path or prefix",
                  spec->server, spec->path);
    }
  }
  return {};
}

bool TierSpec::flag(std::string_view wanted) const {
  if (const auto value = given(flags, wanted)) return *value;
  const Result<TierScheme> row = find_scheme(scheme);
  assert(row);
  const auto known = std::ranges::find(row->flags, wanted, &TierScheme::Flag::name);
  assert(known != row->flags.end());
  return known->unset;
}

std::string TierSpec::text(std::string_view wanted) const {
  if (const auto value = given(texts, wanted)) return *value;
  const Result<TierScheme> row = find_scheme(scheme);
  assert(row);
  const auto known = std::ranges::find(row->texts, wanted, &TierScheme::Text::name);
  assert(known != row->texts.end());
  return std::string(known->unset);
}

std::string TierScheme::example() const {
  const std::string_view where = place == Place::kFolder ? "///folder" : server_example;
  return fmt::format("{}:{}{}", scheme, where, size_required ? "?size=8GiB" : "");
}

std::vector<TierScheme> tier_schemes() {
  std::vector<TierScheme> schemes;
  for (const TierEntry& entry : kTiers) {
    schemes.push_back(entry.describe());
    schemes.back().scheme = entry.scheme;
  }
  return schemes;
}

Result<std::vector<TierSpec>> parse_tiers(const std::vector<std::string_view>& urls) {
  std::vector<TierSpec> specs;
  for (const std::string_view url : urls) {
    SHALE_ASSIGN(specs.emplace_back(), parse_spec(url));
  }
  SHALE_TRY(check_distinct(specs));
  name_the_nameless(specs);
  return specs;
}

Result<std::unique_ptr<Tier>> make_tier(const TierSpec& spec, const Clock& clock) {
  SHALE_ASSIGN(const TierScheme scheme, find_scheme(spec.scheme));
  SHALE_ASSIGN(auto tier, scheme.make(spec, clock));
  if (!spec.throttle) return tier;
  return make_throttled_tier(std::move(tier), *spec.throttle, clock);
}

Result<std::unique_ptr<Tier>> make_tier(std::string_view url, const Clock& clock) {
  SHALE_ASSIGN(const std::vector<TierSpec> specs, parse_tiers({url}));
  return make_tier(specs.front(), clock);
}

}  // namespace shale
