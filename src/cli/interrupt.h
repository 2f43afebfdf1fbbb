// Ctrl-C and SIGTERM: a flag that long work looks at between its steps.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.h"

namespace shale {

// From now on the first SIGINT or SIGTERM only sets the flag; the second ends the process as usual. Called again, it
// forgets what came before.
void catch_interrupts();

bool interrupted();
// Whether that was by SIGTERM, by which nobody means a part of the work.
bool told_to_end();

// kCancelled once interrupted.
Status check_interrupt();

// Ends the process where it does not come to its own end: threads that a storage holds inside the system cannot be told
// to go. Files are as after a kill, which all that is stored survives.
class EndWatch {
 public:
  // From now on it may take so long until this is destroyed; then the message is printed and the process exits with 1.
  void arm(double seconds, std::string message);

 private:
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread thread_;
};

}  // namespace shale
