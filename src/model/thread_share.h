// How many threads to compute with while other programs want the same cores.
//
// Threads wait for each other at every barrier of a graph, so one that shares its core with another program makes all
// of them as slow as itself: two threads beside one busy neighbour on two cores are slower than one. Who waited for a
// core, and how long, is what the kernel counts; as many threads as did are left out, and tried again from time to
// time. To do without a thread costs more than a visit of some milliseconds, such as those that a tier's own threads
// pay: who is left out has lost more than that, unless a neighbour is known to be there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shale {

// Not thread-safe. What is computed does not depend on the number of threads (StepSequence).
class ThreadShare {
 public:
  explicit ThreadShare(std::uint32_t threads) : threads_(threads), active_(threads) {}

  // To compute with: 1 … threads.
  std::uint32_t active() const { return active_; }
  // Of the threads that computed, how long each was ready to run and had no core, during so many seconds of computing
  // until `now_s`; those are some 50 ms. What a few calls say is added up.
  void observe(std::span<const double> waited_s, double seconds, double now_s);

 private:
  void look_afresh(std::uint32_t active);

  std::uint32_t threads_, active_;
  std::vector<double> waited_s_;  // by thread
  double seconds_ = 0;            // in which they did
  double patience_s_ = 0;         // until all are tried again
  double try_at_s_ = 0;
};

}  // namespace shale
