// An open loop of clients: every chat begins when it was planned, however many are running.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "loadtest/serve/serve_client.h"
#include "loadtest/serve/serve_load.h"

namespace shale {

struct LoadHooks {
  // The body of the last of `turns`, which are a chat's so far; to those before it came these answers. Called before
  // its time, by several threads at once.
  std::function<std::string(std::span<const LoadRequest> turns, const std::vector<std::string>& answers)> body;
  // Now and then, by the caller's thread.
  std::function<void(std::size_t answered)> progress;
  // Makes running requests fail, so that an interrupted run ends.
  std::function<void()> give_up;
};

// What was asked, each at its planned time and in their order, and what came.
struct ServedLoad {
  std::vector<LoadRequest> load;
  std::vector<ServedAnswer> answers;  // one for each; failed ones have an error
};

// Holds every chat of `load` (as make_load has them) with the server at `port` and waits for all to end: a thread each
// while it is running. A chat ends where a request of it fails: the turns left are not asked. kCancelled after Ctrl-C.
Result<ServedLoad> run_load(std::uint16_t port, std::vector<LoadRequest> load, const LoadHooks& hooks);

}  // namespace shale
