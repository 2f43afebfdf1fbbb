#include "cli/command.h"

namespace shale {

void add_bench(Command parent, Action& chosen) {
  Command group = parent.add_group("bench",
                                   "Measure this machine: the engine, its kernels, scorers, KV budgets, tiers, store, "
                                   "server, planner and simulator");
  group.footer(
      "Examples:\n"
      "  shale bench engine --peer ~/llama.cpp/build/bin --json\n"
      "  shale bench kernels\n"
      "  shale bench tiers --tiny");
  add_bench_engine(group, chosen);
  add_bench_kernels(group, chosen);
  add_bench_scoring(group, chosen);
  add_bench_tiers(group, chosen);
  add_bench_exact(group, chosen);
  add_bench_placement(group, chosen);
  add_bench_serve(group, chosen);
  add_bench_chaos(group, chosen);
  add_bench_soak(group, chosen);
  add_bench_side_channel(group, chosen);
  add_bench_store(group, chosen);
  add_bench_paging(group, chosen);
  add_bench_paging_quality(group, chosen);
  add_bench_planner(group, chosen);
  add_bench_simulate(group, chosen);
  add_bench_hazard(group, chosen);
}

}  // namespace shale
