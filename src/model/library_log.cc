#include "model/library_log.h"

#include <llama.h>

#include <mutex>

namespace shale {

void silence_libraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Sets ggml's callback as well.
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  });
}

}  // namespace shale
