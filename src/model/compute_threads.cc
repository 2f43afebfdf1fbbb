#include "model/compute_threads.h"

#include <algorithm>
#include <cassert>
#include <thread>

namespace shale {
namespace {

// In units of 131,072 pauses (ggml): about 50 ms of spinning before a worker sleeps.
constexpr std::uint32_t kPoll = 10;

std::uint32_t thread_count(std::uint32_t asked) {
  const std::uint32_t count = asked ? asked : std::thread::hardware_concurrency();
  return std::clamp<std::uint32_t>(count, 1, GGML_MAX_N_THREADS);
}

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t threads) : threads_(thread_count(threads)) {
  ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(threads_));
  params.poll = kPoll;
  pool_.reset(ggml_threadpool_new(&params));

  constexpr std::size_t kNodes = 4;
  loop_context_.reset(
      ggml_init({.mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false) + 256,
                 .mem_buffer = nullptr,
                 .no_alloc = false}));
  ggml_tensor* node =
      ggml_custom_4d(loop_context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run_loop, GGML_N_TASKS_MAX, this);
  loop_graph_ = ggml_new_graph_custom(loop_context_.get(), kNodes, false);
  ggml_build_forward_expand(loop_graph_, node);
  loop_plan_ = plan(loop_graph_);
}

ComputeThreads::~ComputeThreads() = default;

ggml_cplan ComputeThreads::plan(const ggml_cgraph* graph, std::uint32_t threads) const {
  return ggml_graph_plan(graph, static_cast<int>(threads ? threads : threads_), pool_.get());
}

void ComputeThreads::compute(ggml_cgraph* graph, ggml_cplan& plan) {
  if (plan.work_size > scratch_.size()) scratch_ = AlignedBuffer(plan.work_size);
  plan.work_data = reinterpret_cast<std::uint8_t*>(scratch_.data());
  [[maybe_unused]] const ggml_status status = ggml_graph_compute(graph, &plan);
  assert(status == GGML_STATUS_SUCCESS);
}

void ComputeThreads::parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) {
  if (count <= 1 || threads_ == 1) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  loop_work_ = &work;
  loop_count_ = count;
  loop_next_.store(0, std::memory_order_relaxed);
  compute(loop_graph_, loop_plan_);
}

void ComputeThreads::run_loop(ggml_tensor*, int, int, void* self) {
  auto& threads = *static_cast<ComputeThreads*>(self);
  for (;;) {
    const std::size_t i = threads.loop_next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= threads.loop_count_) return;
    (*threads.loop_work_)(i);
  }
}

}  // namespace shale
