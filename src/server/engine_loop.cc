#include "server/engine_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "profile/spare_time.h"

namespace shale {

namespace {

constexpr double kPublishEveryS = 0.1;
constexpr double kLookForWorkEveryS = 0.5;  // for the watch, while requests are running

}  // namespace

Answer::~Answer() {
  if (!channel_) return;
  channel_->abandon();
  loop_->cancel(std::move(channel_));
}

std::optional<Channel::Part> Answer::next(std::chrono::milliseconds wait) {
  if (!channel_) return std::nullopt;
  auto part = channel_->next(wait);
  if (part && part->response) --running_;
  if (part && (part->refused || running_ == 0)) channel_ = nullptr;
  return part;
}

EngineLoop::EngineLoop(const EngineLoopOptions& options, Engine& engine, const Clock& clock)
    : options_(options), engine_(engine), clock_(clock), measuring_turns_(options.quiet_s) {
  if (options.watch) {
    QualityWatchOptions watch = *options.watch;
    watch.beside = true;
    watch_.emplace(watch, engine);
  }
  requests_.cached = CachedTokens(engine.cache().tiers());
  static_cast<void>(tier_news_.look(tier_states(engine.cache(), engine.cache().store().stats()),
                                    clock.now_s()));  // whoever opened them has told
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() { stop(std::chrono::milliseconds(0)); }

// Of all that are in flight none may have begun yet: the engine never has to refuse one.
std::uint32_t EngineLoop::requests_max() const {
  const EngineOptions& limits = engine_.options();
  return std::min(limits.sequences_max + options_.queue_max, limits.waiting_max);
}

Result<Answer> EngineLoop::submit(std::vector<Request> requests, Delivery delivery,
                                  std::vector<std::shared_ptr<const void>> places) {
  const auto count = static_cast<std::uint32_t>(requests.size());
  places.resize(count);
  auto channel = std::make_shared<Channel>(options_.text_bytes_max, count, std::move(delivery.on_news));
  const std::lock_guard lock(mutex_);
  if (stopping_) return fail(ErrorCode::kCancelled, "the server is shutting down");
  if (const std::uint32_t most = requests_max(); count > most - std::min(in_flight_, most)) {
    overloaded_ += count;
    return fail(ErrorCode::kBusy, "{} requests are running or waiting of the {} that this server takes: no room for {}",
                in_flight_, most, count);
  }
  in_flight_ += count;
  submissions_.push_back({std::move(requests), std::move(places), delivery.streamed, delivery.tokens, channel,
                          std::make_shared<Together>(count), clock_.now_s()});
  news_.notify_one();
  return Answer(*this, std::move(channel), count);
}

void EngineLoop::cancel(std::shared_ptr<const Channel> channel) {
  const std::lock_guard lock(mutex_);
  cancellations_.push_back(std::move(channel));
  news_.notify_one();
}

std::uint32_t EngineLoop::retry_after_s() const {
  const std::lock_guard lock(mutex_);
  const Histogram& seconds = metrics_.requests.total_seconds;
  const double each_s = seconds.count() ? seconds.sum() / static_cast<double>(seconds.count()) : 0;
  return static_cast<std::uint32_t>(std::clamp(std::ceil(each_s / engine_.options().sequences_max), 1.0, 60.0));
}

ServerMetrics EngineLoop::metrics() const {
  const std::lock_guard lock(mutex_);
  ServerMetrics metrics = metrics_;
  metrics.requests.overloaded = overloaded_;
  return metrics;
}

bool EngineLoop::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void EngineLoop::stop(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancel_at_ = std::min(cancel_at_, std::chrono::steady_clock::now() + grace);
    news_.notify_one();
  }
  std::call_once(joined_, [this] { thread_.join(); });
}

void EngineLoop::run() {
  while (take_inbox()) {
    // Before who comes looks for room.
    if (watch_ && watch_->holds_pages() && engine_.needs_guests_pages()) watch_->let_go();
    const bool worked = engine_.run_once();
    deliver();
    if (!keep_profiles(worked) && !worked) wait_for_work();
  }
  watch_.reset();  // what is stored and noted from now on may wait for other processes again
}

// A turn of the engine and what belongs to it, for whoever measures meanwhile; false once the loop stops.
bool EngineLoop::turn() {
  const bool going = take_inbox();
  if (engine_.needs_guests_pages()) return false;  // before others give up what they wait to store
  engine_.run_once();
  deliver();
  const std::lock_guard lock(mutex_);
  return going && !stopping_;
}

// What others left between two steps; false when this was the last time.
bool EngineLoop::take_inbox() {
  std::vector<Submission> submissions;
  std::vector<std::shared_ptr<const Channel>> cancellations;
  bool stopping = false, grace_over = false;
  {
    const std::lock_guard lock(mutex_);
    submissions = std::exchange(submissions_, {});
    cancellations = std::exchange(cancellations_, {});
    stopping = stopping_;
    grace_over = std::chrono::steady_clock::now() >= cancel_at_;
  }
  for (Submission& submission : submissions) take(std::move(submission));
  if (grace_over || !cancellations.empty()) {
    for (const auto& [id, running] : running_) {
      const bool asked = std::ranges::find(cancellations, running.channel) != cancellations.end();
      if (grace_over || asked) engine_.cancel(id);
    }
    deliver();
  }
  return !stopping || !running_.empty();
}

void EngineLoop::take(Submission submission) {
  std::vector<RequestId> taken;
  while (taken.size() < submission.requests.size()) {
    auto id = take_choice(submission, taken.size());
    if (!id) return refuse(std::move(submission), taken, std::move(id).error());
    taken.push_back(*id);
  }
  submission.channel->begin({});
}

Result<RequestId> EngineLoop::take_choice(Submission& submission, std::size_t choice) {
  const std::shared_ptr<Channel>& channel = submission.channel;
  Request& request = submission.requests[choice];
  Running running{channel, choice, submission.together, submission.came_s, clock_.now_s(), request.tenant};
  if (watch_) running.asked = request;  // before it holds what sends the answer
  if (submission.streamed) {
    request.on_text = [this, channel, choice](std::string_view piece) {
      if (!channel->push(choice, piece)) cancel(channel);
    };
  }
  if (submission.tokens) {
    request.on_token = [channel, choice](DrawnToken token) { channel->add(choice, std::move(token)); };
  }
  if (request.prompt_logprobs) {
    request.on_prompt = [channel, choice](PromptLogprobs prompt) { channel->add_prompt(choice, std::move(prompt)); };
  }
  SHALE_ASSIGN(const RequestId id, engine_.submit(std::move(request)));
  measuring_turns_.note_request(clock_.now_s());
  if (watch_) watch_->on_request(running.asked);
  running.place = std::move(submission.places[choice]);
  running_.emplace(id, std::move(running));
  return id;
}

// All of them for one, before which `taken` were taken.
void EngineLoop::refuse(Submission submission, std::span<const RequestId> taken, Error error) {
  submission.together->refused = true;
  for (const RequestId id : taken) engine_.cancel(id);
  if (!taken.empty()) deliver();
  for (std::size_t left = taken.size(); left < submission.places.size(); ++left) {
    ++requests_.refused;
    give_back(std::move(submission.places[left]));
  }
  submission.channel->begin(std::unexpected(std::move(error)));
}

// Before its client hears of it, who may send the next.
void EngineLoop::give_back(std::shared_ptr<const void> place) {
  place = nullptr;
  const std::lock_guard lock(mutex_);
  --in_flight_;
}

void EngineLoop::count(const Running& request, const Response& response) {
  if (request.together->refused) {
    ++requests_.refused;
    return;
  }
  requests_.finish(response, clock_.now_s() - request.came_s);
  Together& together = *request.together;
  together.longest = std::max(together.longest, response.drawn());
  if (--together.running == 0) requests_.longest_answers.observe(static_cast<double>(together.longest));
  if (request.tenant.empty()) return;
  TenantServed& served = served_[request.tenant];
  ++served.requests;
  served.prompt_tokens += response.begun ? response.prompt_tokens : 0;
  served.generated_tokens += response.drawn();
  served.cached.add(response.cached);
  served.queue_seconds += response.queue_seconds;
}

void EngineLoop::deliver() {
  std::vector<Response> responses = engine_.finished();
  for (Response& response : responses) {
    const Running& request = running_.at(response.id);
    const double inbox_s = request.taken_s - request.came_s;  // which the engine does not know of
    response.queue_seconds += inbox_s;
    if (response.drawn() > 0) response.ttft_seconds += inbox_s;
    count(request, response);
  }
  if (!responses.empty() || clock_.now_s() - published_s_ >= kPublishEveryS) publish();
  for (Response& response : responses) {
    const auto running = running_.extract(response.id);
    give_back(std::move(running.mapped().place));
    measuring_turns_.note_request(clock_.now_s());
    if (watch_) watch_->on_response(running.mapped().asked, response);
    running.mapped().channel->finish(running.mapped().choice, std::move(response));
  }
}

// A piece of work, beside requests where there are any; where there are none, once storing waits for tiers at most,
// which may be slow. False where there is none, no place for it, or it is not its turn; the prior, without which next
// to nothing is compressed, need not wait for that.
bool EngineLoop::keep_profiles(bool worked) {
  if (!watch_) return false;
  const double now_s = clock_.now_s();
  const bool place = now_s >= nothing_to_measure_until_s_ && engine_.guest_tokens(0) > 0;
  if (running_.empty() ? worked : !place) return false;
  if (!measuring_turns_.due(now_s) && !watch_->measures_prior()) return false;
  if (engine_.needs_guests_pages()) return false;
  SpareTime spare(engine_, clock_, [this] { return turn(); });
  const Stop stop(spare);
  const OwnTime time(stop);
  const bool measured = watch_->work(stop);
  measuring_turns_.note_piece(now_s, time.seconds(), engine_.cache().stats().background_seconds);
  if (!measured) nothing_to_measure_until_s_ = now_s + kLookForWorkEveryS;
  if (measured) publish();
  return measured;
}

void EngineLoop::publish() {
  const Cache& cache = engine_.cache();
  const PagePool& pool = engine_.cache().pool();
  const std::uint32_t block_pages = pool.shape().pages_per_block();
  ServerMetrics metrics{.requests = requests_,
                        .engine = engine_.stats(),
                        .running = engine_.running(),
                        .waiting = engine_.waiting(),
                        .preempted = engine_.preempted(),
                        .loading = engine_.loading(),
                        .occupancy = engine_.occupancy(),
                        .watch = watch_ ? watch_->stats() : QualityWatchStats{},
                        .metric = std::string(cache.metric()),
                        .quality_floor = cache.options().quality_floor,
                        .cache = cache.stats(),
                        .store = cache.store().stats(),
                        .pages_total = std::uint64_t{pool.blocks_total()} * block_pages,
                        .pages_free = pool.pages_free(),
                        .pages_evictable = std::uint64_t{cache.blocks_evictable()} * block_pages,
                        .page_bytes = pool.shape().page_bytes()};
  metrics.store.saves_left += engine_.spans_to_repeat().size();
  metrics.served = served_;
  for (const auto& tier : cache.tiers()) {
    metrics.tiers.push_back({tier->name(), tier->capacity_bytes(), tier->used_bytes(), tier->stats(), tier->speed(),
                             tier->reads_queued(), tier->writes_queued(), tier->breaker()});
  }
  published_s_ = clock_.now_s();
  tell_of_tiers(metrics.store);
  const std::lock_guard lock(mutex_);
  metrics_ = std::move(metrics);
}

void EngineLoop::tell_of_tiers(const StoreStats& stats) {
  if (!options_.on_note) return;
  for (const std::string& line : tier_news_.look(tier_states(engine_.cache(), stats), clock_.now_s()))
    options_.on_note(line);
}

// Until somebody leaves something, or what is running may have made work.
void EngineLoop::wait_for_work() {
  publish();
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::milliseconds(engine_.cache().idle() ? 500 : 5);
  news_.wait_for(lock, pause, [this] { return !submissions_.empty() || !cancellations_.empty() || stopping_; });
}

}  // namespace shale
