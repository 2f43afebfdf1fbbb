// Where CPU work runs. The engine hands out one executor over its own threads; a second pool of busy threads beside
// them would ruin the matrix library's barriers, so nothing in Shale starts compute threads of its own.
#pragma once

#include <cstddef>
#include <functional>

namespace shale {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::size_t threads() const = 0;
  // Calls work(0) … work(count - 1), each once, on any of the threads, and returns when all are done. `work` must not
  // throw and must not call parallel_for again. One caller at a time.
  virtual void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) = 0;
  // Computed with fewer threads than that, because other programs wanted their cores.
  virtual double seconds_short() const { return 0; }
};

// Runs everything on the calling thread.
class InlineExecutor final : public Executor {
 public:
  std::size_t threads() const override { return 1; }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) override {
    for (std::size_t i = 0; i < count; ++i) work(i);
  }
};

}  // namespace shale
