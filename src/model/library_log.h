// ggml and libllama print to stderr by default; Shale reports through its error values.
#pragma once

namespace shale {

// Turns both libraries' messages off, once per process. Thread-safe.
void silence_libraries();

}  // namespace shale
