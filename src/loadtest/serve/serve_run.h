// An open loop of clients: every request is sent when it was planned, however many are running.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/error.h"
#include "loadtest/serve/serve_client.h"
#include "loadtest/serve/serve_load.h"

namespace shale {

struct LoadHooks {
  // The body of the next request; called in order, by the caller's thread, before its time.
  std::function<std::string(const LoadRequest& request)> body;
  // Now and then, by the caller's thread.
  std::function<void(std::size_t answered)> progress;
  // Makes running requests fail, so that an interrupted run ends.
  std::function<void()> give_up;
};

// Sends every request of `load` (ascending in time) to the server at `port` and waits for all answers: a thread each
// while it is running. Answers are in the order of the load; failed ones have an error. kCancelled after Ctrl-C.
Result<std::vector<ServedAnswer>> run_load(std::uint16_t port, std::span<const LoadRequest> load,
                                           const LoadHooks& hooks);

}  // namespace shale
