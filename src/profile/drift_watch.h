// Keeps profiles true while an engine serves.
//
// What requests ask about a context is remembered; when the engine has nothing to do, contexts about which enough was
// asked since the last look are looked at: where a profile no longer holds (drift.h), the context is profiled again on
// these questions, method by method, so that little is lost when the next request comes.
//
// A context is what a request stores in front of what it asks: a chat's system message, a completion's context. Turns
// of a longer chat are none.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "profile/drift.h"

namespace shale {

struct DriftWatchOptions {
  bool profile_new = false;             // contexts that were never profiled, too
  DriftOptions check = {};              // of its questions_max newest questions; `stop` is not used
  std::uint32_t questions_between = 4;  // different ones, since the last look
  std::uint32_t context_tokens_min = 128;
  std::uint32_t contexts_max = 64;  // remembered, those asked last
};

struct DriftWatchStats {
  std::uint64_t questions = 0;                // remembered
  std::uint64_t checks = 0, drifted = 0;      // looked at; of these, where the profile no longer held
  std::uint64_t profiled = 0;                 // contexts profiled, drifted or new
  std::uint64_t interrupted = 0, failed = 0;  // pieces of work that a request ended, or an error
  double check_seconds = 0, profile_seconds = 0;
};

// For the thread that owns the engine.
class DriftWatch {
 public:
  DriftWatch(const DriftWatchOptions& options, Engine& engine) : options_(options), engine_(engine) {}

  // Remembers what is asked.
  void on_request(const Request& request);
  // A piece of work, where there is some: a check, or profiling with one method. False where there is none. Ends within
  // a forward step, or an encoding, once `stop` says so. Only while no request is under way.
  bool work(const Stop& stop);
  const DriftWatchStats& stats() const { return stats_; }

 private:
  struct Context {
    Hash128 run;
    AskedContext asked;
    std::string label;
    std::uint32_t new_questions = 0;           // since the last look
    std::vector<std::string> unprofiled = {};  // methods that are still to be measured
  };

  Status look(Context& context, const Stop& stop);
  Status profile(Context& context, const Stop& stop);
  void plan_profile(Context& context) const;

  const DriftWatchOptions options_;
  Engine& engine_;
  std::list<Context> contexts_;  // asked last first
  DriftWatchStats stats_;
};

}  // namespace shale
