#include "model/compute_threads.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "core/resources.h"

namespace shale {
namespace {

constexpr double kLookEveryS = 0.05;  // of computing: long beside a scheduler's turns
constexpr double kIdleS = 0.01;       // between two graphs: what threads waited for then is not computing

double process_ran_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// In units of 131,072 pauses (ggml): about 50 ms of spinning before a worker sleeps.
constexpr std::uint32_t kPoll = 10;

std::uint32_t thread_count(std::uint32_t asked) {
  const std::uint32_t count = asked ? asked : usable_cores();
  return std::clamp<std::uint32_t>(count, 1, GGML_MAX_N_THREADS);
}

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t threads) : threads_(thread_count(threads)), share_(threads_) {
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

// 0 seconds where the kernel does not count.
ComputeThreads::Turns ComputeThreads::turns_of(int thread) {
  std::ifstream stream("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  std::uint64_t ran_ns = 0, waited_ns = 0;
  if (!(stream >> ran_ns >> waited_ns)) return {.thread = thread};
  return {thread, 1e-9 * static_cast<double>(ran_ns), 1e-9 * static_cast<double>(waited_ns)};
}

ComputeThreads::Pool& ComputeThreads::pool(std::uint32_t threads) {
  std::unique_ptr<Pool>& pool = threads == threads_ ? all_ : fewer_;
  if (!pool || pool->turns.size() != threads) {
    ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(threads));
    params.poll = kPoll;
    pool = std::make_unique<Pool>();
    pool->threads.reset(ggml_threadpool_new(&params));
    find_workers(*pool, threads);
  }
  return *pool;
}

// Every thread enters its number; none can enter twice while it waits for all others.
void ComputeThreads::find_workers(Pool& pool, std::uint32_t threads) {
  std::atomic<std::size_t> entered = 0;
  pool.turns.resize(threads);
  const std::function<void(std::size_t)> enter = [&](std::size_t i) {
    pool.turns[i].thread = ::gettid();
    for (++entered; entered < threads;) std::this_thread::yield();
  };
  loop_work_ = &enter;
  loop_count_ = threads;
  loop_next_.store(0, std::memory_order_relaxed);
  ggml_cplan plan = loop_plan_;
  run(loop_graph_, plan, pool, threads);
  std::erase_if(pool.turns, [](const Turns& each) { return each.thread == ::gettid(); });
  for (Turns& each : pool.turns) each = turns_of(each.thread);
  pool.turns.insert(pool.turns.begin(), Turns());  // the caller's
}

ggml_cplan ComputeThreads::plan(const ggml_cgraph* graph, std::uint32_t threads) const {
  return ggml_graph_plan(graph, static_cast<int>(threads ? threads : threads_), nullptr);
}

void ComputeThreads::run(ggml_cgraph* graph, ggml_cplan& plan, Pool& pool, std::uint32_t threads) {
  if (plan.work_size > scratch_.size()) scratch_ = AlignedBuffer(plan.work_size);
  plan.work_data = reinterpret_cast<std::uint8_t*>(scratch_.data());
  plan.n_threads = static_cast<int>(threads);
  plan.threadpool = pool.threads.get();
  [[maybe_unused]] const ggml_status status = ggml_graph_compute(graph, &plan);
  assert(status == GGML_STATUS_SUCCESS);
}

void ComputeThreads::compute(ggml_cgraph* graph, ggml_cplan& plan) {
  const int planned = plan.n_threads;
  const std::uint32_t threads = std::min(static_cast<std::uint32_t>(planned), share_.active());
  const double begun_s = planned > 1 ? clock_.now_s() : 0;
  if (planned > 1 && begun_s - ended_s_ > kIdleS) forget_waits();
  run(graph, plan, pool(threads), threads);
  plan.n_threads = planned;
  if (planned == 1) return;
  ended_s_ = clock_.now_s();
  computed_s_ += ended_s_ - begun_s;
  if (threads < static_cast<std::uint32_t>(planned)) short_s_ += ended_s_ - begun_s;
  if (computed_s_ >= kLookEveryS) look_at_neighbours();
}

// As they are now, of the caller and of all workers. Returns how long all other threads of this process have run.
double ComputeThreads::note_turns() {
  Pool& computing = pool(share_.active());
  computing.turns.front().thread = ::gettid();
  double others_s = process_ran_s();
  for (Turns& each : computing.turns) {
    each = turns_of(each.thread);
    others_s -= each.ran_s;
  }
  const Pool* idle = &computing == all_.get() ? fewer_.get() : all_.get();
  for (std::size_t worker = 1; idle && worker < idle->turns.size(); ++worker) {
    others_s -= turns_of(idle->turns[worker].thread).ran_s;
  }
  return others_s;
}

// Since the last look, on average, beside those on which so much was computed. 0 where that is not known, or not asked.
double ComputeThreads::idle_cores(double computed_s) {
  const std::uint32_t active = share_.active();
  const auto seconds = active < threads_ ? idle_core_seconds() : std::nullopt;
  const auto before = std::exchange(idle_, std::nullopt);
  if (!seconds) return 0;
  idle_ = Idle{*seconds, clock_.now_s()};
  if (!before) return 0;
  const double passed_s = idle_->at_s - before->at_s, own_s = active * std::max(0.0, passed_s - computed_s);
  return passed_s > 0 ? (*seconds - before->seconds - own_s) / passed_s : 0;
}

void ComputeThreads::look_at_neighbours() {
  const std::uint32_t active = share_.active();
  const std::vector<Turns> before = pool(active).turns;
  const double others_s = note_turns(), own_s = others_s - std::exchange(others_ran_s_, others_s);
  std::vector<double> waited;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Turns& now = pool(active).turns[i];
    waited.push_back(now.thread == before[i].thread ? now.waited_s - before[i].waited_s : 0);
  }
  const double computed_s = std::exchange(computed_s_, 0);
  share_.observe(waited, std::max(0.0, own_s), computed_s, ended_s_, idle_cores(computed_s));
  if (share_.active() != active) forget_waits();
}

// Forgets waits that passed before, between steps that others' requests asked for, say.
void ComputeThreads::forget_waits() {
  computed_s_ = 0;
  others_ran_s_ = note_turns();
  idle_.reset();
}

void ComputeThreads::parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) {
  if (count <= 1 || threads_ == 1) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  pool(share_.active());  // making it takes the loop
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
