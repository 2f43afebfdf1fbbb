// The thread that owns an engine, and the way to it from others.
//
//   EngineLoop ── owns ──> thread ── alone calls ──> Engine
//                      ──> inbox    submissions and cancellations, taken between two steps
//                      ──> Channel  of requests submitted together, shared with their Answer
//   Answer     ── held by whoever serves the client; dropping it cancels the requests
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "engine/engine.h"
#include "profile/quality_watch.h"
#include "server/channel.h"
#include "server/measuring_turns.h"
#include "server/metrics.h"
#include "server/tier_news.h"

namespace shale {

class EngineLoop;

// The answers to requests that were submitted together. One thread at a time may use it; must be gone before its
// loop.
class Answer {
 public:
  Answer(Answer&&) noexcept = default;
  Answer& operator=(Answer&&) = delete;
  // Cancels what has not ended.
  ~Answer();

  // What has come since the last call: that the engine took or refused the requests, then of one of them text, where
  // they are streamed, and at its end the response. Nothing where nothing has come within `wait`, or all have ended. An
  // answer that is read too slowly is cancelled.
  std::optional<Channel::Part> next(std::chrono::milliseconds wait);

 private:
  friend class EngineLoop;
  Answer(EngineLoop& loop, std::shared_ptr<Channel> channel, std::size_t requests)
      : loop_(&loop), channel_(std::move(channel)), running_(requests) {}

  EngineLoop* loop_;
  std::shared_ptr<Channel> channel_;  // null once moved from or ended
  std::size_t running_;               // requests that have not ended
};

// How an answer comes.
struct Delivery {
  bool streamed = false;               // text is passed on as it comes
  bool tokens = false;                 // its parts have them
  std::function<void()> on_news = {};  // called by the engine's thread whenever there is a part
};

struct EngineLoopOptions {
  std::uint32_t queue_max = 64;                          // requests that may wait, beside those decoded together
  std::size_t text_bytes_max = std::size_t{256} << 10;   // that a client may be behind its answer
  std::optional<QualityWatchOptions> watch = {};         // profiles are kept true in spare time
  double quiet_s = 10;                                   // without a request; all time is spare then
  std::function<void(const std::string&)> on_note = {};  // called by the engine's thread with a line for people
};

class EngineLoop {
 public:
  // From now to `stop` nobody else may call the engine. Both must outlive the loop.
  EngineLoop(const EngineLoopOptions& options, Engine& engine, const Clock& clock);
  ~EngineLoop();  // stops without grace

  // The rest is thread-safe.

  // Does not wait for the engine: whether it takes the requests, all or none, is the first part of the answer. kBusy
  // when the queue has no room for all, kCancelled once the loop stops. `places`: none, or one for each, held as long
  // as the engine has the request, which may be longer than its answer is.
  Result<Answer> submit(std::vector<Request> requests, Delivery delivery,
                        std::vector<std::shared_ptr<const void>> places = {});
  // How many may run and wait together.
  std::uint32_t requests_max() const;
  // In how many seconds a place in the queue should be free: by what requests took so far, 1 to 60.
  std::uint32_t retry_after_s() const;
  // At most a tenth of a second old while the engine runs, and never older than the last answer.
  ServerMetrics metrics() const;
  bool stopping() const;
  // Takes no more requests, ends those running, after `grace` by cancelling them, and returns when the thread has
  // ended: the engine is the caller's again.
  void stop(std::chrono::milliseconds grace);

 private:
  friend class Answer;
  struct Together {
    std::size_t running = 0;  // that have not ended
    std::size_t longest = 0;  // answer, in tokens
    bool refused = false;     // before they began, all for one
  };
  struct Submission {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<const void>> places;  // one for each
    bool streamed = false, tokens = false;
    std::shared_ptr<Channel> channel;
    std::shared_ptr<Together> together;
    double came_s = 0;
  };
  struct Running {
    std::shared_ptr<Channel> channel;
    std::size_t choice = 0;              // of the channel's
    std::shared_ptr<Together> together;  // with those submitted with it
    double came_s = 0, taken_s = 0;      // from the inbox, between two steps
    std::string tenant = {};
    std::shared_ptr<const void> place = nullptr;
    Request asked = {};  // for the watch, where there is one
  };

  void cancel(std::shared_ptr<const Channel> channel);
  void run();
  bool take_inbox();
  void take(Submission submission);
  Result<RequestId> take_choice(Submission& submission, std::size_t choice);
  void refuse(Submission submission, std::span<const RequestId> taken, Error error);
  void deliver();
  void give_back(std::shared_ptr<const void> place);
  void count(const Running& request, const Response& response);
  bool turn();
  bool keep_profiles(bool worked);
  void publish();
  void tell_of_tiers(const StoreStats& stats);
  void wait_for_work();

  const EngineLoopOptions options_;
  Engine& engine_;
  const Clock& clock_;

  // The thread's own.
  std::unordered_map<RequestId, Running> running_;
  std::optional<QualityWatch> watch_;
  RequestMetrics requests_;
  std::map<std::string, TenantServed> served_;  // by tenant
  TierNews tier_news_;
  double published_s_ = 0;
  double nothing_to_measure_until_s_ = 0;
  MeasuringTurns measuring_turns_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::vector<Submission> submissions_;
  std::vector<std::shared_ptr<const Channel>> cancellations_;
  std::uint32_t in_flight_ = 0;  // submitted and not ended
  std::uint64_t overloaded_ = 0;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point cancel_at_ = std::chrono::steady_clock::time_point::max();
  ServerMetrics metrics_;

  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace shale
