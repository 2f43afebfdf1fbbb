#include "cli/renamed_options.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace shale {
namespace {

constexpr auto kRenamed = std::to_array<RenamedOption>({
    {"disk", "disk-size"},
    {"evict", "kv-eviction"},
    {"evict-full-layers", "kv-eviction-full-layers"},
    {"evict-interval", "kv-eviction-interval"},
    {"evict-prefill", "kv-eviction-prefill"},
    {"memory", "memory-size"},
    {"page-budget", "kv-budget"},
    {"page-tokens", "block-size"},
    {"queue", "max-queue"},
    {"remote", "remote-size"},  // of `shale simulate tiers`, where it was a size
    {"resident", "kv-cache-dtype"},
    {"sequences", "max-num-seqs"},
});

std::string variable_of(std::string_view option) {
  std::string name = "SHALE_";
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

std::span<const RenamedOption> renamed_options() { return kRenamed; }

std::string_view renamed_option(std::string_view old_name) {
  const auto found = std::ranges::find(kRenamed, old_name, &RenamedOption::old_name);
  return found == kRenamed.end() ? std::string_view() : found->new_name;
}

std::string renamed_variable(std::string_view old_name) {
  const auto found =
      std::ranges::find_if(kRenamed, [&](const RenamedOption& each) { return variable_of(each.old_name) == old_name; });
  return found == kRenamed.end() ? "" : variable_of(found->new_name);
}

}  // namespace shale
