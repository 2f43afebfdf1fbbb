#include "cli/command_cache.h"

namespace shale {

void add_cache(CLI::App& parent, Action& chosen) {
  CLI::App* group = add_group(parent, "cache", "See and keep in order what is stored");
  group->footer(
      "Examples:\n"
      "  shale cache ls\n"
      "  shale cache verify\n"
      "  shale cache purge --model smollm2-135m");
  add_cache_ls(*group, chosen);
  add_cache_show(*group, chosen);
  add_cache_verify(*group, chosen);
  add_cache_rm(*group, chosen);
  add_cache_purge(*group, chosen);
}

}  // namespace shale
