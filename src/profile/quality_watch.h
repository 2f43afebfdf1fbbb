// Measures answers' quality in time that nobody else needs, in pieces: while the engine has nothing to compute, and,
// where its owner can let requests go on meanwhile, in spare places of their steps (spare_time.h). A piece ends early
// when it is told to, or requests need its pages.
//
//   1. The prior of its model, once (prior.h).
//   2. Whether a profile still holds (drift.h), where enough was answered over a lossy form of its context since the
//      last look, or else asked: what requests ask is recorded, in the metadata store, too. A context whose profile
//      does not hold is profiled again on these questions, and placed again at once. This comes before the prior.
//   3. Contexts that were never profiled, or on half as many questions as are known by now; of those that are used
//      most, the one first whose profile is worth most: how often it is asked, times how much of the tiers it takes,
//      times how much surer its qualities would be. What this process measured, it does not ask again.
//
// Profiles use what was asked, even where that is one question.
//
// A context is what a request stores in front of what it asks: a completion's context, a chat up to the turn with which
// there is enough of it. A later turn becomes one once answers are given over a lossy form of it.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "placement/placement.h"
#include "profile/drift.h"
#include "profile/prior.h"

namespace shale {

struct QualityWatchOptions {
  bool prior = true;                    // measure the prior
  bool profile_new = true;              // 3., too
  bool beside = false;                  // work() lets requests go on: pages are kept when one comes
  bool keep_questions = true;           // what was asked, in the metadata store, for the next process
  DriftOptions check = {};              // of its questions_max newest questions; `stop` is not used
  std::uint32_t questions_between = 4;  // different ones, since the last look
  std::uint32_t context_tokens_min = 128;
  // Those asked last are known: so many of them, that have so many tokens together.
  std::size_t contexts_max = 1024, tokens_max = std::size_t{4} << 20;
};

struct QualityWatchStats {
  std::uint64_t questions = 0;                // asked
  std::uint64_t recalled = 0;                 // of those that an earlier process was asked
  std::uint64_t prior_texts = 0;              // measured for the prior
  std::uint64_t prior_texts_left = 0;         // to be measured, or looked for; 0 where none are
  std::uint64_t checks = 0, drifted = 0;      // looked at; of these, where the profile no longer held
  std::uint64_t answers = 0;                  // given over lossy forms, that were compared with the full cache's
  std::uint64_t profiled = 0;                 // profiles made
  std::uint64_t interrupted = 0, failed = 0;  // pieces of work that a request ended, or an error
  double prior_seconds = 0, check_seconds = 0, profile_seconds = 0;
};

// Only the thread that owns the engine may call it.
class QualityWatch {
 public:
  // Does nothing where the engine's cache does not weigh quality, or has nothing but full to choose.
  // While it lives, nothing waits for another process's write to the metadata store: what it records it tries again.
  QualityWatch(const QualityWatchOptions& options, Engine& engine);
  ~QualityWatch();
  QualityWatch(const QualityWatch&) = delete;
  QualityWatch& operator=(const QualityWatch&) = delete;

  // Records what is asked, and gives back all pages unless `beside`. Call it before the engine computes the request,
  // which may be within work(), and where the engine may refuse it, once it has not. A copy may be kept: its callbacks
  // should hold nothing.
  void on_request(const Request& request);
  // Records the answer, where it was over a lossy form that the planner chose.
  void on_response(const Request& request, const Response& response);
  // Gives back the pages that it holds between pieces, and whether it holds any.
  void let_go();
  bool holds_pages() const;
  // A piece of work, where there is some. False where there is none. Ends within a forward step, or an encoding, once
  // `stop` says so; what it had found out so far it keeps. With `beside`, `stop` lets requests go on; else only while
  // none is running.
  bool work(const Stop& stop);
  // Whether the next piece is the prior's.
  bool measures_prior();
  const QualityWatchStats& stats() const { return stats_; }

 private:
  struct Context {
    Hash128 run;
    AskedContext asked;
    std::string label;
    Frequency accesses;
    std::uint32_t new_questions = 0;  // since the last look, as the next
    std::uint32_t new_answers = 0;
    std::vector<LossyAnswer> answers = {};          // the newest
    std::vector<std::vector<Token>> unlogged = {};  // that the metadata store does not have yet
    bool recalled = false;                          // what was asked before this process
    std::uint32_t tried_on = 0;                     // questions of its profile, or of the last try to make one
    std::vector<std::vector<Token>> measured = {};  // what this process profiled it on; none: nothing
  };

  bool may_look_at(const Request& request) const;
  void note_later(const Request& request, std::optional<Response> response);
  void note_request(const Request& request);
  void note_response(const Request& request, const Response& response);
  bool work_on(const Stop& stop);
  Context& context_of(std::span<const Token> tokens, const std::string& label);
  bool add_question(Context& context, const std::vector<Token>& question);
  bool log_questions();
  void recall_questions(Context& context);
  Context* context_to_check();
  Context* context_to_profile();
  bool is_profiled(const Context& context) const;
  std::uint32_t questions_of_profile(const Context& context) const;
  bool has_outgrown_profile(Context& context);
  double use(const Context& context) const;
  double gain(const Context& context) const;

  Result<bool> measure_prior(const Stop& stop);
  Status go_on(const Stop& stop);
  Status look(Context& context, const Stop& stop);
  Status begin(Context& context, bool holds);

  const QualityWatchOptions options_;
  Engine& engine_;
  const bool able_;
  std::list<Context> contexts_;  // asked last first
  std::size_t tokens_ = 0;       // of all contexts
  // What came while a piece of work looks at them.
  struct Came {
    Request request;
    std::optional<Response> response;
  };
  bool working_ = false;
  std::deque<Came> came_;
  std::optional<PriorMeasurement> prior_;
  std::optional<ContextProfiling> profiling_;
  std::vector<std::vector<Token>> measuring_;  // Context::measured once it is done
  unsigned pauses_ = 0;                        // since the last piece of work that was done
  double goes_on_s_ = 0;
  QualityWatchStats stats_;
};

}  // namespace shale
