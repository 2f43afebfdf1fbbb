// The parts of an engine, shared by the files that implement it: engine.cc (requests in and out), engine_admission.cc
// (who runs), engine_step.cc (forward steps), engine_segment.cc (segments become entries).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "engine/engine.h"
#include "engine/run.h"
#include "engine/waiting_line.h"

namespace shale {

inline constexpr std::uint32_t kWindowInterval = 64;  // decoded tokens between two looks behind sliding windows

struct Engine::State {
  EngineOptions options;
  Model& model;
  const Tokenizer& tokenizer;
  Cache& cache;
  const Clock& clock;

  WaitingLine waiting{options.scheduler, options.scheduling, cache};
  std::vector<std::unique_ptr<Run>> running = {};    // by priority, then as they began
  std::vector<std::unique_ptr<Run>> suspended = {};  // likewise; what made room in the pool
  std::vector<Response> done = {};
  EngineStats stats = {};
  RequestId next_id = 1;
  std::uint64_t begun = 0;  // requests
  Hash128 nonce = {};       // of this engine: names of what it spills
  ChunkControl chunks{options.chunk_tokens};

  std::uint32_t slabs_for(const Run& run) const;
  std::uint32_t slabs_to_begin(const Run& run) const;
  std::uint32_t slabs_in_use(const Run& run) const;
  bool fits(std::uint32_t slabs) const;
  // Whether what is computed is as with halves; of a pool of int8 no answer is.
  bool exact_pages() const { return cache.pool().shape().element == PageElement::kHalf; }
  void admit();
  void resume();
  bool can_compute_again(const Run& run) const;
  bool preempt(const Run& needy);
  void make_way(Run& run);
  Hash128 name_of(const Run& run) const;
  void begin(Run& run);
  Status fetch(Run& run);
  void retry(Run& run);
  bool append(Run& run, std::uint32_t tokens);
  bool reserve(Run& run, std::uint32_t tokens);
  std::vector<Run*> choose_batch() const;
  void step();
  void recover(std::span<Run* const> batch, std::span<const std::uint32_t> lengths, const Error& error);
  Capture* capture_for(Run& run) const;
  void computed(Run& run, const Run::Stretch& stretch, double seconds);
  void cut_prompt(Run& run);
  void return_windows(Run& run);
  void keep_budgets(std::span<Run* const> batch, double step_seconds);
  void in_budget(Run& run, const std::function<void()>& work);
  Status end_segment(Run& run, std::size_t segment);
  Status compress_segment(Run& run, std::size_t segment);
  Result<bool> observe_segment(const Run& run, Cache::NewEntry& entry);
  void compute_again(Run& run);
  Cache::NewEntry entry_of(Run& run, std::size_t segment) const;
  EntryKey parent_of(const Run& run, std::size_t segment) const;
  void draw(Run& run, std::span<const float> logits);
  void first_token(Run& run);
  void finish(Run& run, StopReason reason, std::optional<Error> error = std::nullopt);
  void reap();
};

}  // namespace shale
