#include "tiers/redis/redis_client.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <latch>
#include <map>
#include <thread>
#include <utility>

#include "core/random.h"
#include "core/utf8.h"
#include "io/io_threads.h"

namespace shale {
namespace {

constexpr unsigned kRedirectionsMax = 6;
constexpr double kRefreshEveryS = 0.2;
// Errors of a server that cannot answer now, and may soon, or that another one is replacing: a call is sent again after
// a random part of a pause, which doubles.
constexpr std::string_view kPassing[] = {"CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN"};
constexpr unsigned kPausesMax = 6;
constexpr double kPauseS = 0.05;
constexpr double kSuccessorAfterS = 0.1;  // where a node is gone: by then others have said who holds its slots

}  // namespace

double random_pause_share() { return 0.5 + 0.5 * static_cast<double>(random_number() >> 11) * 0x1p-53; }

bool refuses_command(const Error& error) {
  constexpr std::string_view kRefusals[] = {"NOPERM", "cluster support disabled", "nknown command",
                                            "nknown subcommand"};
  return std::ranges::any_of(kRefusals, [&](auto words) { return error.message.find(words) != std::string::npos; });
}

std::unique_ptr<RedisCall> redis_call(std::span<const std::string_view> arguments,
                                      std::function<void(Result<RespValue>)> done, RespParser::Place place) {
  auto call = std::make_unique<RedisCall>();
  call->command = resp_command(arguments);
  if (arguments.size() > 1) call->slot = redis_slot(arguments[1]);
  call->done = std::move(done);
  call->place = std::move(place);
  return call;
}

// A thread and the connections that it serves.
class RedisClient::Worker {
 public:
  explicit Worker(RedisClient& client)
      : client_(client), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), thread_([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake();
  }

  // At the earliest after `delay_s`; to the nodes that have the calls' slots by then, where none is given.
  void send(Lane lane, std::optional<std::uint32_t> node, std::span<std::unique_ptr<RedisCall>> calls,
            double delay_s = 0) {
    const double due_s = delay_s > 0 ? client_.clock_.now_s() + delay_s : 0;
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = inbox_.empty();  // whose sender wakes the thread
      for (auto& call : calls) inbox_.push_back({lane, node, std::move(call), due_s});
    }
    if (first) wake();
  }
  void send(Lane lane, std::optional<std::uint32_t> node, std::unique_ptr<RedisCall> call, double delay_s = 0) {
    send(lane, node, {&call, 1}, delay_s);
  }

 private:
  struct Letter {
    Lane lane;
    std::optional<std::uint32_t> node;
    std::unique_ptr<RedisCall> call;
    double due_s;
  };

  void wake() { (void)eventfd_write(wake_.get(), 1); }

  void run() {
    stand_back(StandBack::kForReads);
    block_broken_pipes();
    while (take_letters()) {
      for (auto& [where, link] : links_) link->step();  // what its callbacks send lies in the inbox then
      wait();
    }
    links_.clear();
  }

  // False when it is to end.
  bool take_letters() {
    std::vector<Letter> letters;
    bool closing = false;
    {
      const std::lock_guard lock(mutex_);
      letters.swap(inbox_);
      closing = closing_;
    }
    const double now_s = client_.clock_.now_s();
    for (; !later_.empty() && (closing || later_.begin()->first <= now_s); later_.erase(later_.begin())) {
      letters.push_back(std::move(later_.begin()->second));
    }
    for (Letter& letter : letters) {
      if (closing) {
        letter.call->done(fail(ErrorCode::kCancelled, "closing"));
      } else if (letter.due_s > now_s) {
        later_.emplace(letter.due_s, std::move(letter));
      } else {
        deliver(letter);
      }
    }
    return !closing;
  }

  void deliver(Letter& letter) {
    const std::uint32_t to = letter.node ? *letter.node : client_.slots_.owner(letter.call->slot);
    if (const auto failed = std::exchange(letter.call->failed_at, std::nullopt); failed && failed->first == to) {
      return letter.call->done(std::unexpected(failed->second));
    }
    if (Breaker* breaker = client_.breaker_of(to)) {
      const auto ticket = breaker->admit();
      if (!ticket) {
        client_.refresh(to);
        return letter.call->done(std::unexpected(ticket.error()));
      }
      letter.call->ticket = *ticket;
    }
    RedisLink& link = link_to(letter.lane, to);
    if (std::exchange(letter.call->asking, false)) {
      auto asking = redis_call(std::array<std::string_view, 1>{"ASKING"}, [](const auto&) {});
      asking->pauses = kPausesMax;  // it means nothing without what follows it
      link.send(std::move(asking));
    }
    link.send(std::move(letter.call));
  }

  RedisLink& link_to(Lane lane, std::uint32_t node) {
    auto& link = links_[{lane, node}];
    if (!link) {
      link = std::make_unique<RedisLink>(
          client_.slots_.node(node), client_.access_,
          lane == Lane::kQuestions ? RedisLink::Touch::kLooks : RedisLink::Touch::kUses, client_.clock_,
          [this, lane, node](std::unique_ptr<RedisCall> call, Result<RespValue> reply) {
            client_.replied(lane, node, std::move(call), std::move(reply));
          },
          [this, node] { client_.refresh(node); });
    }
    return *link;
  }

  void wait() {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    double overdue_s = client_.clock_.now_s() + 1;
    if (!later_.empty()) overdue_s = std::min(overdue_s, later_.begin()->first);
    for (const auto& [where, link] : links_) {
      overdue_s = std::min(overdue_s, link->overdue_s());
      if (link->fd() < 0) continue;
      fds.push_back({link->fd(), static_cast<short>(link->wants_write() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    {
      const std::lock_guard lock(mutex_);
      if (!inbox_.empty() || closing_) return;
    }
    const double seconds = std::max(0.0, overdue_s - client_.clock_.now_s());
    (void)poll(fds.data(), fds.size(), static_cast<int>(seconds * 1e3) + 1);
    eventfd_t count = 0;
    (void)eventfd_read(wake_.get(), &count);
  }

  RedisClient& client_;
  const FileDescriptor wake_;
  std::map<std::pair<Lane, std::uint32_t>, std::unique_ptr<RedisLink>> links_;  // of the thread alone
  std::multimap<double, Letter> later_;                                         // likewise, by when they are due
  std::mutex mutex_;                                                            // guards what follows
  std::vector<Letter> inbox_;
  bool closing_ = false;
  std::jthread thread_;
};

RedisClient::RedisClient(RedisNode seed, RedisAccess access, const Clock& clock)
    : access_(std::move(access)), clock_(clock), slots_(std::move(seed)) {
  for (auto& worker : workers_) worker = std::make_unique<Worker>(*this);
}

RedisClient::~RedisClient() = default;

void RedisClient::send(Lane lane, std::span<std::unique_ptr<RedisCall>> calls) {
  worker_of(lane).send(lane, std::nullopt, calls);
}

// Writes, for which nobody waits, have a thread of their own.
RedisClient::Worker& RedisClient::worker_of(Lane lane) const { return *workers_[lane == Lane::kWrites ? 1 : 0]; }

void RedisClient::replied(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, Result<RespValue> reply) {
  if (Breaker* breaker = breaker_of(node); breaker && call->ticket) {
    breaker->ended(*std::exchange(call->ticket, std::nullopt), reply ? Status() : std::unexpected(reply.error()));
  }
  if (!reply) return failed(lane, node, std::move(call), reply.error());
  if (reply->kind == RespValue::Kind::kError) return answered_error(lane, node, std::move(call), reply->text);
  call->done(std::move(reply));
}

void RedisClient::answered_error(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call,
                                 const std::string& message) {
  call->tries = 0;  // it was answered: the next connection may be lost once again
  const RedisNode from = slots_.node(node);
  const auto redirection = parse_redirection(message, from);
  const auto to =
      redirection && call->redirections < kRedirectionsMax ? slots_.number_of(redirection->node) : std::nullopt;
  if (to) {
    ++call->redirections;
    call->asking = redirection->asking;
    if (!redirection->asking) {
      slots_.move(redirection->slot, *to);
      refresh(node);
    }
    return worker_of(lane).send(lane, *to, std::move(call));
  }
  const bool passes = std::ranges::any_of(kPassing, [&](std::string_view word) { return message.starts_with(word); });
  if (passes) refresh(node);
  const double pause_s = call->pause_share * std::ldexp(kPauseS, static_cast<int>(call->pauses));
  if (passes && call->pauses < kPausesMax && clock_.now_s() + pause_s < call->deadline_s) {
    ++call->pauses;
    call->put_off = printable(message, kSaidBytes);
    const auto same = call->slot ? std::nullopt : std::optional(node);
    return worker_of(lane).send(lane, same, std::move(call), pause_s);
  }
  call->done(std::unexpected(said_by(from, message)));
}

// Another node of the cluster may have taken its place.
void RedisClient::failed(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, const Error& error) {
  const bool again = error.code == ErrorCode::kIo && call->slot && slots_.cluster() &&
                     call->redirections < kRedirectionsMax && clock_.now_s() + kSuccessorAfterS < call->deadline_s;
  if (!again) {
    if (call->put_off.empty()) return call->done(std::unexpected(error));
    return call->done(fail(error.code, "{}; before, a server said: {}", error.message, call->put_off));
  }
  ++call->redirections;
  call->tries = 0;
  call->failed_at = {node, error};
  worker_of(lane).send(lane, std::nullopt, std::move(call), kSuccessorAfterS);
}

Breaker* RedisClient::breaker_of(std::uint32_t node) {
  if (!slots_.cluster()) return nullptr;
  const std::lock_guard lock(mutex_);
  auto& breaker = breakers_[node];
  if (!breaker) breaker = std::make_unique<Breaker>(Breaker::Options(), clock_);
  return breaker.get();
}

BreakerState RedisClient::breakers() const {
  const std::vector<std::uint32_t> owners = slots_.owners();
  const std::lock_guard lock(mutex_);
  BreakerState all{.kind = BreakerState::Kind::kOpen};
  for (const auto& [node, breaker] : breakers_) {
    const BreakerState state = breaker->state();
    if (std::ranges::binary_search(owners, node)) all.kind = std::min(all.kind, state.kind);
    all.opened += state.opened;
    all.refused += state.refused;
    all.failures += state.failures;
  }
  return all;
}

std::optional<Error> RedisClient::trouble() const {
  const std::vector<std::uint32_t> owners = slots_.owners();
  const std::lock_guard lock(mutex_);
  for (const auto& [node, breaker] : breakers_) {
    if (!std::ranges::binary_search(owners, node)) continue;
    if (auto trouble = breaker->trouble()) return trouble;
  }
  return std::nullopt;
}

void RedisClient::refresh(std::uint32_t not_from) {
  if (!slots_.cluster()) return;
  {
    const std::lock_guard lock(mutex_);
    if (clock_.now_s() < refreshed_s_ + kRefreshEveryS) return;
    refreshed_s_ = clock_.now_s();
  }
  std::vector<std::uint32_t> others = slots_.owners();
  if (others.size() > 1) std::erase(others, not_from);
  const std::uint32_t number = others[random_number() % others.size()];
  auto call = redis_call(std::array<std::string_view, 2>{"CLUSTER", "SLOTS"},
                         [this, from = slots_.node(number)](const Result<RespValue>& slots) {
                           if (slots) (void)slots_.take(*slots, from);
                         });
  call->slot.reset();
  call->deadline_s = deadline_s();
  worker_of(Lane::kQuestions).send(Lane::kQuestions, number, std::move(call));
}

Result<std::vector<RedisNode>> RedisClient::holders() {
  const std::vector<Command> question{{"CLUSTER", "SLOTS"}};
  const double deadline = deadline_s();
  Result<RespValue> slots;
  RedisNode from;
  for (const std::uint32_t number : slots_.owners()) {
    from = slots_.node(number);
    slots = std::move(ask(question, deadline, number).front());
    if (slots) break;
  }
  const bool cluster = slots && slots->kind == RespValue::Kind::kArray && !slots->items.empty();
  if (cluster) SHALE_TRY(slots_.take(*slots, from));
  if (!slots && !refuses_command(slots.error())) return std::unexpected(slots.error());
  if (!cluster) return std::vector{slots_.node(0)};
  std::vector<RedisNode> nodes;
  for (const std::uint32_t number : slots_.owners()) nodes.push_back(slots_.node(number));
  return nodes;
}

RedisClient::Replies RedisClient::ask(std::span<const Command> commands, const RedisNode& node) {
  const auto number = slots_.number_of(node);
  if (number) return ask(commands, deadline_s(), number);
  const Result<RespValue> refused = fail(ErrorCode::kIo, "{}:{} is one node too many", node.host, node.port);
  return Replies(commands.size(), refused);
}

RedisClient::Replies RedisClient::ask(std::span<const Command> commands, double deadline_s,
                                      std::optional<std::uint32_t> node) {
  Replies replies(commands.size());
  const auto left = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(commands.size()));
  std::vector<std::unique_ptr<RedisCall>> calls;
  const double pause_share = random_pause_share();
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string_view> arguments(commands[i].begin(), commands[i].end());
    auto call = redis_call(arguments, [&replies, left, i](Result<RespValue> reply) {
      replies[i] = std::move(reply);
      left->count_down();
    });
    if (node) call->slot.reset();
    call->deadline_s = deadline_s;
    call->pause_share = pause_share;
    calls.push_back(std::move(call));
  }
  worker_of(Lane::kQuestions).send(Lane::kQuestions, node, calls);
  left->wait();
  return replies;
}

}  // namespace shale
