#include "tiers/redis/redis_client.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <latch>
#include <map>
#include <thread>
#include <utility>

#include "io/io_threads.h"

namespace shale {
namespace {

constexpr std::uint32_t kSlots = 16384;
constexpr std::size_t kNodesMax = 1024;
constexpr unsigned kRedirectionsMax = 6;
constexpr double kRefreshEveryS = 1;

// CRC-16/XMODEM.
std::uint16_t crc16(std::string_view text) {
  std::uint16_t crc = 0;
  for (const char c : text) {
    crc = static_cast<std::uint16_t>(crc ^ (static_cast<unsigned char>(c) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<std::uint16_t>(crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
  }
  return crc;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Error error_of(const RedisNode& node, const std::string& said) {
  const bool full = said.starts_with("OOM ");
  return {full ? ErrorCode::kFull : ErrorCode::kIo, fmt::format("{}:{} says: {}", node.host, node.port, said)};
}

}  // namespace

std::unique_ptr<RedisCall> redis_call(std::span<const std::string_view> arguments,
                                      std::function<void(Result<RespValue>)> done, RespParser::Place place) {
  auto call = std::make_unique<RedisCall>();
  call->command = resp_command(arguments);
  if (arguments.size() > 1) call->slot = redis_slot(arguments[1]);
  call->done = std::move(done);
  call->place = std::move(place);
  return call;
}

std::uint16_t redis_slot(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return static_cast<std::uint16_t>(crc16(key) % kSlots);
}

std::optional<RedisRedirection> parse_redirection(std::string_view error, const RedisNode& from) {
  RedisRedirection to;
  to.asking = error.starts_with("ASK ");
  if (!to.asking && !error.starts_with("MOVED ")) return std::nullopt;
  error.remove_prefix(error.find(' ') + 1);
  const std::size_t space = error.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto slot = number<std::uint16_t>(error.substr(0, space));
  const std::string_view where = error.substr(space + 1);
  const std::size_t colon = where.rfind(':');
  if (!slot || *slot >= kSlots || colon == std::string_view::npos) return std::nullopt;
  const auto port = number<std::uint16_t>(where.substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  to.slot = *slot;
  to.node = {colon == 0 ? from.host : std::string(where.substr(0, colon)), *port};
  return to;
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

  void send(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back({lane, node, std::move(call)});
    }
    wake();
  }

 private:
  struct Letter {
    Lane lane;
    std::uint32_t node;
    std::unique_ptr<RedisCall> call;
  };

  void wake() { (void)eventfd_write(wake_.get(), 1); }

  void run() {
    stand_back(StandBack::kForReads);
    sigset_t pipes;  // TLS writes without MSG_NOSIGNAL
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
    while (take_letters()) {
      wait();
      for (auto& [where, link] : links_) link->step();
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
    for (Letter& letter : letters) {
      if (closing) {
        letter.call->done(fail(ErrorCode::kCancelled, "closing"));
        continue;
      }
      RedisLink& link = link_to(letter.lane, letter.node);
      if (std::exchange(letter.call->asking, false)) {
        link.send(redis_call(std::array<std::string_view, 1>{"ASKING"}, [](const auto&) {}));
      }
      link.send(std::move(letter.call));
      link.step();
    }
    return !closing;
  }

  RedisLink& link_to(Lane lane, std::uint32_t node) {
    auto& link = links_[{lane, node}];
    if (!link) {
      RedisNode where;
      {
        const std::lock_guard lock(client_.mutex_);
        where = client_.nodes_[node];
      }
      link = std::make_unique<RedisLink>(
          where, client_.access_, client_.clock_,
          [this, lane, node](std::unique_ptr<RedisCall> call, RespValue value) {
            client_.replied(lane, node, std::move(call), std::move(value));
          },
          [this, node] { client_.refresh(node); });
    }
    return *link;
  }

  void wait() {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    double overdue_s = client_.clock_.now_s() + 1;
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
  std::mutex mutex_;                                                            // guards what follows
  std::vector<Letter> inbox_;
  bool closing_ = false;
  std::jthread thread_;
};

RedisClient::RedisClient(RedisNode seed, RedisAccess access, const Clock& clock)
    : access_(std::move(access)), clock_(clock), nodes_{std::move(seed)} {
  for (int i = 0; i < 2; ++i) workers_.push_back(std::make_unique<Worker>(*this));
}

RedisClient::~RedisClient() = default;

void RedisClient::send(Lane lane, std::unique_ptr<RedisCall> call) {
  const std::uint32_t node = node_of(*call);
  send_to(lane, node, std::move(call));
}

// Writes, for which nobody waits, have a thread of their own.
void RedisClient::send_to(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call) {
  workers_[lane == Lane::kWrites ? 1 : 0]->send(lane, node, std::move(call));
}

std::uint32_t RedisClient::node_of(const RedisCall& call) const {
  const std::lock_guard lock(mutex_);
  return owners_.empty() ? 0 : owners_[call.slot.value_or(0)];
}

std::optional<std::uint32_t> RedisClient::number_of(const RedisNode& node) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(nodes_, node);
  if (known == nodes_.end() && nodes_.size() == kNodesMax) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(known - nodes_.begin());
  if (known == nodes_.end()) nodes_.push_back(node);
  return number;
}

void RedisClient::replied(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, RespValue value) {
  if (value.kind != RespValue::Kind::kError) return call->done(std::move(value));
  RedisNode from;
  {
    const std::lock_guard lock(mutex_);
    from = nodes_[node];
  }
  const auto redirection = parse_redirection(value.text, from);
  const auto to = redirection && call->redirections < kRedirectionsMax ? number_of(redirection->node) : std::nullopt;
  if (!to) {
    if (value.text.starts_with("CLUSTERDOWN")) refresh(node);
    return call->done(std::unexpected(error_of(from, value.text)));
  }
  ++call->redirections;
  call->asking = redirection->asking;
  if (!redirection->asking) {
    {
      const std::lock_guard lock(mutex_);
      if (owners_.empty()) owners_.assign(kSlots, 0);
      owners_[redirection->slot] = *to;
    }
    refresh(node);
  }
  send_to(lane, *to, std::move(call));
}

void RedisClient::refresh(std::uint32_t not_from) {
  RedisNode from;
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (owners_.empty() || clock_.now_s() < refreshed_s_ + kRefreshEveryS) return;
    refreshed_s_ = clock_.now_s();
    for (const std::uint32_t owner : owners_) {
      if (owner != not_from) number = owner;
    }
    from = nodes_[number];
  }
  send_to(Lane::kQuestions, number,
          redis_call(std::array<std::string_view, 2>{"CLUSTER", "SLOTS"}, [this, from](const Result<RespValue>& slots) {
            if (slots) (void)take_slots(*slots, from);
          }));
}

Status RedisClient::take_slots(const RespValue& slots, const RedisNode& from) {
  using Kind = RespValue::Kind;
  std::vector<std::uint32_t> owners;
  {
    const std::lock_guard lock(mutex_);
    owners = owners_;
  }
  owners.resize(kSlots, 0);
  for (const RespValue& range : slots.items) {
    const auto bad = [&] {
      return fail(ErrorCode::kIo, "{}:{} tells of its slots what cannot be", from.host, from.port);
    };
    if (range.items.size() < 3 || range.items[2].items.size() < 2) return bad();
    const RespValue &first = range.items[0], &last = range.items[1];
    const RespValue &host = range.items[2].items[0], &port = range.items[2].items[1];
    const bool sound = first.kind == Kind::kInteger && last.kind == Kind::kInteger && port.kind == Kind::kInteger &&
                       first.integer >= 0 && first.integer <= last.integer && last.integer < kSlots &&
                       port.integer > 0 && port.integer < 65536;
    if (!sound) return bad();
    const bool named = host.kind == Kind::kBulk && !host.text.empty() && host.text != "?";
    const auto number = number_of({named ? host.text : from.host, static_cast<std::uint16_t>(port.integer)});
    if (!number) return bad();
    std::fill(owners.begin() + first.integer, owners.begin() + last.integer + 1, *number);
  }
  const std::lock_guard lock(mutex_);
  owners_ = std::move(owners);
  return {};
}

Result<std::vector<RedisNode>> RedisClient::holders() {
  RedisNode from;
  {
    const std::lock_guard lock(mutex_);
    from = nodes_[owners_.empty() ? 0 : owners_[0]];
  }
  const std::vector<Command> question{{"CLUSTER", "SLOTS"}};
  const auto slots = std::move(ask(question).front());
  const bool cluster = slots && slots->kind == RespValue::Kind::kArray && !slots->items.empty();
  if (cluster) SHALE_TRY(take_slots(*slots, from));
  if (!slots && slots.error().message.find("cluster support disabled") == std::string::npos &&
      slots.error().message.find("NOPERM") == std::string::npos) {
    return std::unexpected(slots.error());
  }
  const std::lock_guard lock(mutex_);
  if (!cluster) return std::vector{nodes_.front()};
  std::vector<std::uint32_t> numbers = owners_;
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<RedisNode> nodes;
  for (const std::uint32_t number : numbers) nodes.push_back(nodes_[number]);
  return nodes;
}

RedisClient::Replies RedisClient::ask(std::span<const Command> commands) { return ask(commands, std::nullopt); }

RedisClient::Replies RedisClient::ask(std::span<const Command> commands, const RedisNode& node) {
  const auto number = number_of(node);
  if (number) return ask(commands, number);
  const Result<RespValue> refused = fail(ErrorCode::kIo, "{}:{} is one node too many", node.host, node.port);
  return Replies(commands.size(), refused);
}

RedisClient::Replies RedisClient::ask(std::span<const Command> commands, std::optional<std::uint32_t> node) {
  Replies replies(commands.size());
  const auto left = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(commands.size()));
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string_view> arguments(commands[i].begin(), commands[i].end());
    auto call = redis_call(arguments, [&replies, left, i](Result<RespValue> reply) {
      replies[i] = std::move(reply);
      left->count_down();
    });
    const std::uint32_t to = node ? *node : node_of(*call);
    send_to(Lane::kQuestions, to, std::move(call));
  }
  left->wait();
  return replies;
}

}  // namespace shale
