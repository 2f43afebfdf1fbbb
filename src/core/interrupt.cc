#include "core/interrupt.h"

#include <csignal>

namespace shale {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

// The second may be of the other kind.
void on_signal(int signal) {
  if (g_interrupted != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = signal;
}

}  // namespace

void catch_interrupts() {
  g_interrupted = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

bool told_to_end() { return g_interrupted == SIGTERM; }

Status check_interrupt() {
  if (interrupted()) return fail(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace shale
