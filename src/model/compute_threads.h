// The threads that compute: one ggml thread pool runs graphs, attention and everything else handed to the executor, so
// that no two sets of busy threads fight over the cores. Fewer compute beside other programs that want the cores
// (thread_share.h).
//
// Workers spin for a few tens of milliseconds after the last piece of work (a launch costs microseconds while a step
// runs) and then sleep: an idle process uses no CPU.
#pragma once

#include <ggml-cpu.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/clock.h"
#include "core/executor.h"
#include "model/thread_share.h"

namespace shale {

class ComputeThreads final : public Executor {
 public:
  // 0: as many as the process may use cores (usable_cores).
  explicit ComputeThreads(std::uint32_t threads);
  ~ComputeThreads() override;

  std::size_t threads() const override { return threads_; }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) override;
  double seconds_short() const override { return short_s_; }

  // Plans once, for `threads` of them (0: all); the plan is good for as long as the graph.
  ggml_cplan plan(const ggml_cgraph* graph, std::uint32_t threads = 0) const;
  // Runs the graph, on the caller and the workers. One caller at a time, parallel_for included.
  void compute(ggml_cgraph* graph, ggml_cplan& plan);

 private:
  struct FreePool {
    void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
  };
  struct FreeContext {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  // What the kernel says of a thread: how long it ran, and how long it was ready and had no core.
  struct Turns {
    int thread = 0;  // by the kernel's number
    double ran_s = 0, waited_s = 0;
  };
  // How long all cores have been idle, added up, until then.
  struct Idle {
    double seconds = 0, at_s = 0;
  };
  // As many threads as compute together. Threads of pools that are not used sleep.
  struct Pool {
    std::unique_ptr<ggml_threadpool, FreePool> threads;
    std::vector<Turns> turns;  // the caller's, then the workers'
  };

  static void run_loop(ggml_tensor* target, int thread, int threads, void* self);
  Pool& pool(std::uint32_t threads);
  void run(ggml_cgraph* graph, ggml_cplan& plan, Pool& pool, std::uint32_t threads);
  void find_workers(Pool& pool, std::uint32_t threads);
  static Turns turns_of(int thread);
  double note_turns();
  double idle_cores(double computed_s);
  void look_at_neighbours();
  void forget_waits();

  const RealClock clock_;
  std::uint32_t threads_;
  std::unique_ptr<Pool> all_, fewer_;  // made when first needed; of fewer threads one pool at a time
  AlignedBuffer scratch_;
  // parallel_for is a graph of one node that calls run_loop on every thread.
  std::unique_ptr<ggml_context, FreeContext> loop_context_;
  ggml_cgraph* loop_graph_ = nullptr;
  ggml_cplan loop_plan_{};
  const std::function<void(std::size_t)>* loop_work_ = nullptr;
  std::size_t loop_count_ = 0;
  std::atomic<std::size_t> loop_next_{0};
  ThreadShare share_;
  double computed_s_ = 0, ended_s_ = 0;  // since they were last looked at; when computing last ended
  double others_ran_s_ = 0;              // when they were last looked at
  std::optional<Idle> idle_;             // likewise, while fewer threads compute
  double short_s_ = 0;                   // computed with fewer threads than planned
};

}  // namespace shale
