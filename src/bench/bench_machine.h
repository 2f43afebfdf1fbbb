// What the machine can do, printed beside every benchmark.
#pragma once

#include <cstdint>
#include <string>

#include "report/output.h"

namespace shale {

struct Machine {
  std::string cpu;           // model name
  std::string instructions;  // that the attention kernel runs with
  std::uint32_t cores = 0;
  std::uint64_t memory_bytes = 0;
  double read_bytes_per_s_one = 0;  // of memory, one thread
  double read_bytes_per_s_all = 0;  // one thread a core

  Json json() const;
  std::string text() const;  // one line
};

// Reads memory for about half a second.
Machine measure_machine();

}  // namespace shale
