#include <array>

#include "cli/command.h"

namespace shale {
namespace {

// In the order of `shale --help`: what a newcomer needs first comes first.
constexpr auto kCommands =
    std::to_array<AddCommand>({add_demo, add_generate, add_chat, add_serve, add_profile, add_quality, add_compress,
                               add_calibrate, add_cache, add_simulate, add_trace, add_score, add_model, add_bench});

}  // namespace

void add_commands(Command app, Action& chosen) {
  for (AddCommand add : kCommands) add(app, chosen);
}

}  // namespace shale
