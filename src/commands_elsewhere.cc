// What `shale` has in place of the laboratory's commands, which are in `shale-lab`: traces, simulations and benchmarks
// are more code than all that serves, and whoever serves need not build it.
#include "cli/command.h"

namespace shale {

void add_simulate(Command app, Action&) {
  app.add_name("simulate", "How large a cache, which policy, which scheduler: answered from a request trace");
}

void add_trace(Command app, Action&) { app.add_name("trace", "Look at request traces, and make them"); }

void add_bench(Command app, Action&) {
  app.add_name("bench",
               "Measure this machine: the engine, its kernels, scorers, KV budgets, tiers, store, server, "
               "planner and simulator");
}

}  // namespace shale
