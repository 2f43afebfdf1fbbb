// How many threads to compute with while other programs want the same cores.
//
// Threads wait for each other at every barrier of a graph, so one that shares its core with another program makes all
// of them as slow as itself: two threads beside one busy neighbour on two cores are slower than one. How long threads
// waited for a core is what the kernel counts; where that costs more than doing without, as many as there are busy
// neighbours are left out, and tried again from time to time, or once the cores that they had are idle. A visit of some
// milliseconds does not, nor do programs of the lowest priority, which take a core for a moment now and then, nor this
// process's own threads, those of tiers say: they have work to do in any case, and it is soon done.
#pragma once

#include <cstdint>
#include <span>

namespace shale {

// Not thread-safe. Results do not depend on the number of threads (StepSequence).
class ThreadShare {
 public:
  explicit ThreadShare(std::uint32_t threads) : threads_(threads), active_(threads) {}

  // Threads to compute with: 1 … threads.
  std::uint32_t active() const { return active_; }
  // `waited_s`: how long each thread that computed was ready to run and had no core, during so many seconds of
  // computing until `now_s`; those are some 50 ms. `own_s`: how long this process's other threads ran meanwhile.
  // `idle_cores`: how many cores were idle then, beside those of the threads that computed; 0 where nobody knows. A few
  // calls are added up.
  void observe(std::span<const double> waited_s, double own_s, double seconds, double now_s, double idle_cores = 0);

 private:
  void look_afresh(std::uint32_t active);

  std::uint32_t threads_, active_;
  double waited_s_ = 0, seconds_ = 0;        // of all threads, and in which they did
  double patience_s_ = 0;                    // until all are tried again
  double try_at_s_ = 0, try_idle_at_s_ = 0;  // the second: where cores are idle
  bool tries_idle_ = false;                  // all threads are being tried, or were last, because of that
};

}  // namespace shale
