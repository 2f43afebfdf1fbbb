// Several sequences through the model together, in as few steps as they fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "core/clock.h"
#include "model/model.h"

namespace shale {

// Tokens of one forward step, at most.
inline constexpr std::uint32_t kStepTokens = 128;

struct Feed {
  Sequence* sequence = nullptr;  // the tokens are appended to it
  std::span<const Token> tokens;
  Capture* capture = nullptr;  // watches them
};

// Rows of logits, [rows][vocabulary], of feed number `feed` from its token `first` on; valid during the call.
using OnLogits = std::function<void(std::size_t feed, std::size_t first, std::span<const float> rows)>;

// How measuring shares the model with requests (spare_time.h).
class Pace {
 public:
  virtual ~Pace() = default;
  // Lets requests go on until it is measuring's turn again, on top of `depth` tokens. False when measuring is to end.
  virtual bool wait_for_turn(std::uint32_t depth) = 0;
  // Tokens of the step that the turn is for, at least one.
  virtual std::uint32_t tokens() const = 0;
  // Logits as Model::step returns them, valid until the next call. kCancelled when measuring is to end; kBusy where the
  // step was given up for requests: the same tokens wait for another turn. What something captures is given up only
  // before it has begun.
  virtual Result<std::span<const float>> step(std::span<const StepSequence> batch) = 0;
  // Seconds that requests, and storing, have had in these calls so far.
  virtual double seconds_of_others() const = 0;
};

// Whether somebody wants the work to end: looked at before each step and between pieces of other work, which then ends
// with kCancelled. Empty: nobody, and steps are as large as they may be.
class Stop {
 public:
  Stop() = default;
  template <class Asked>
    requires std::predicate<Asked&> && (!std::same_as<std::remove_cvref_t<Asked>, Stop>)
  Stop(Asked who) : asked_(std::move(who)) {}  // NOLINT(google-explicit-constructor)
  // Requests go on meanwhile. Must outlive this.
  explicit Stop(Pace& pace) : pace_(&pace) {}
  // Either of the two, at the pace of the first that has one.
  Stop(const Stop& one, const Stop& other);

  // May take as long as requests take.
  bool asked(std::uint32_t depth = 0) const { return (asked_ && asked_()) || (pace_ && !pace_->wait_for_turn(depth)); }
  Pace* pace() const { return pace_; }

 private:
  std::function<bool()> asked_ = {};
  Pace* pace_ = nullptr;
};
Status check_stop(const Stop& stop, std::uint32_t depth = 0);

// Does what is left of a RunCompressor or a RunExpander.
template <class Steps>
Status step_through(Steps& steps, Executor& executor, const Stop& stop) {
  for (bool more = true; more;) {
    SHALE_ASSIGN(more, steps.step(executor));
    SHALE_TRY(check_stop(stop));
  }
  return {};
}

// Time that measuring itself takes, from now on.
class OwnTime {
 public:
  explicit OwnTime(const Stop& stop) : pace_(stop.pace()), others_s_(others()), start_s_(clock_.now_s()) {}
  double seconds() const { return clock_.now_s() - start_s_ - (others() - others_s_); }

 private:
  double others() const { return pace_ ? pace_->seconds_of_others() : 0; }

  RealClock clock_;
  Pace* pace_;
  double others_s_, start_s_;
};

// Call it after check_stop.
std::uint32_t step_tokens(const Stop& stop);
Result<std::span<const float>> step_at_pace(Model& model, std::span<const StepSequence> batch, const Stop& stop);

// Appends each feed's tokens to its sequence. No logits are computed without `on_logits`. Sequences must differ. On an
// error (kFull: the pool) sequences may have grown by some of their tokens.
Status feed(Model& model, std::span<const Feed> feeds, const OnLogits& on_logits = {}, const Stop& stop = {});

}  // namespace shale
