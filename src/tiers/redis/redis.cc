// The tier in a Redis server or cluster, which many processes share. How blobs lie there: docs/formats/redis.md.
#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include "core/parsing.h"
#include "core/units.h"
#include "tier/breaker.h"
#include "tier/late_opening.h"
#include "tier/pending.h"
#include "tiers/redis/redis_blobs.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

constexpr std::uint16_t kPort = 6379;
constexpr double kTimeoutMax = 3600;
constexpr char kPasswordVariable[] = "SHALE_REDIS_PASSWORD";

class RedisTier final : public Tier {
 public:
  RedisTier(const TierSpec& spec, RedisNode node, RedisAccess access, const Clock& clock)
      : Tier({spec.name, spec.capacity_bytes, {5e-4, 1e9, 1e9}}, clock),
        where_(fmt::format("{}:{}/{}", node.host, node.port, spec.path)),
        secure_(access.tls != nullptr),
        breaker_({}, clock),
        blobs_(spec.text("prefix"), std::move(node), std::move(access), clock) {}
  ~RedisTier() override {
    opening_.stop();
    blobs_.end();
    std::unique_lock lock(mutex_);
    none_in_flight_.wait(lock, [this] { return in_flight_ == 0; });
  }

  // Asks the server how much memory it has, and what is there. Where it does not answer: an error or, if `late`, a tier
  // that is not reachable until it does, and that has room within a bound once what is there has been counted.
  static Result<std::unique_ptr<Tier>> open(std::unique_ptr<RedisTier> tier, bool late) {
    SHALE_TRY(tier->opening_.begin(late));
    return tier;
  }

  Status reachable() const override { return opening_.reached(); }
  std::uint64_t capacity_bytes() const override { return opening_.room(Tier::capacity_bytes()); }
  bool persistent() const override { return true; }
  std::string describe() const override {
    return fmt::format("{}: Redis {}{}", name(), where_, secure_ ? " over TLS" : "");
  }
  std::optional<Error> trouble() const override {
    if (const auto unopened = opening_.trouble()) return unopened;
    const auto trouble = blobs_.cluster() ? blobs_.trouble() : breaker_.trouble();
    return trouble ? trouble : Tier::trouble();
  }
  std::optional<BreakerState> breaker() const override {
    return blobs_.cluster() ? blobs_.breakers() : breaker_.state();
  }
  AskedAtOnce asked_at_once() const override { return {.objects = 512, .guesses = 512}; }
  double untouched_s(const BlobId& id) const override {
    return asked([&] { return blobs_.idle_s(id); }).value_or(0);
  }

 private:
  // Without a bound nothing depends on it, and of a cluster a node may be away for long.
  Status count() {
    const Status counted = count_stored([this] { return total_bytes(); });
    return Tier::capacity_bytes() == kUnlimited || blobs_.cluster() ? Status() : counted;
  }

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    auto read = std::make_shared<PendingRead>(range.offset);
    const auto finish = [this, read, range, start_s](Result<BlobBytes> result) {
      const double seconds = clock_.now_s() - start_s;
      finished_read(start_s, seconds, result, range);
      read->complete(std::move(result), seconds);
    };
    const auto ticket = admit();
    if (!ticket) {
      finish(std::unexpected(ticket.error()));
      return read;
    }
    begin_one();
    blobs_.read(id, range, [this, finish, ticket = *ticket](Result<BlobBytes> result) {
      ended(ticket, result ? Status() : std::unexpected(result.error()));
      finish(std::move(result));
      end_one();
    });
    return read;
  }

  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    auto write = std::make_shared<PendingWrite>();
    const auto finish = [this, write, start_s, size = bytes->size()](Result<bool> created) {
      const double seconds = clock_.now_s() - start_s;
      const Status status = created ? Status() : std::unexpected(created.error());
      finished_write(start_s, seconds, size, created.value_or(false), status);
      write->complete(std::move(created), seconds);
    };
    const auto ticket = admit();
    if (!ticket) {
      finish(std::unexpected(ticket.error()));
      return write;
    }
    begin_one();
    blobs_.write(id, std::move(bytes), [this, finish, ticket = *ticket](Result<bool> created) {
      ended(ticket, created ? Status() : std::unexpected(created.error()));
      finish(std::move(created));
      end_one();
    });
    return write;
  }

  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    SHALE_ASSIGN(const auto removed, asked([&] { return blobs_.remove(id); }));
    return removed ? stored_bytes(*removed) : 0;
  }
  Result<std::vector<BlobId>> list_impl() const override {
    return asked([this] { return blobs_.list(); });
  }
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override {
    SHALE_ASSIGN(auto parts, parts_of_impl({&object, 1}));
    return std::move(parts.front());
  }
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    return asked([&] { return blobs_.parts(objects); });
  }
  std::uint64_t blob_bytes_impl(const BlobId& id) const override {
    const auto sizes = asked([&] { return blobs_.sizes({&id, 1}); });
    return sizes && sizes->front() ? stored_bytes(*sizes->front()) : 0;
  }
  bool count_again() override {
    return count_stored([this] { return asked([this] { return total_bytes(); }); }).has_value();
  }
  Result<std::uint64_t> total_bytes() const {
    SHALE_ASSIGN(const auto ids, blobs_.list());
    SHALE_ASSIGN(const auto sizes, blobs_.sizes(ids));
    std::uint64_t total = 0;
    for (const auto& size : sizes) total += size ? stored_bytes(*size) : 0;
    return total;
  }

  Result<Breaker::Ticket> admit() const {
    if (!opening_.done()) return fail(ErrorCode::kBusy, "{} is not reachable yet", name());
    return breaker_.admit();
  }

  // What a question that blocks gives, unless the breaker is open.
  template <class Question>
  std::invoke_result_t<Question> asked(const Question& question) const {
    SHALE_ASSIGN(const auto ticket, admit());
    auto answer = question();
    ended(ticket, answer ? Status() : std::unexpected(answer.error()));
    return answer;
  }
  // Each node of a cluster has its own breaker, and this one says nothing.
  void ended(Breaker::Ticket ticket, const Status& status) const {
    const bool of_a_node = !status && status.error().code == ErrorCode::kIo && blobs_.cluster();
    breaker_.ended(ticket, of_a_node ? Status() : status);
  }
  void begin_one() {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  void end_one() {
    const std::lock_guard lock(mutex_);
    if (--in_flight_ == 0) none_in_flight_.notify_all();
  }

  const std::string where_;
  const bool secure_;
  mutable Breaker breaker_;
  std::mutex mutex_;  // guards in_flight_
  std::condition_variable none_in_flight_;
  unsigned in_flight_ = 0;  // reads and writes
  mutable RedisBlobs blobs_;
  LateOpening opening_{[this] { return blobs_.greet(); }, [this] { return count(); }};
};

// "user@host:port", "host", "[::1]:port".
struct Server {
  std::string user;
  RedisNode node;
};

Result<Server> parse_server(std::string_view text) {
  Server server;
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    server.user = text.substr(0, at);
    text.remove_prefix(at + 1);
  }
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string_view host = text.substr(0, colon);
  server.node.port = kPort;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    server.node.port = parse_integer<std::uint16_t>(digits).value_or(0);
    if (server.node.port == 0) {
      return fail(ErrorCode::kInvalidArgument, "'{}' is not a port: write 1 to 65535", digits);
    }
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return fail(ErrorCode::kInvalidArgument, "'{}' names no host", text);
  server.node.host = host;
  return server;
}

Result<unsigned> parse_database(const std::string& path) {
  if (path.empty()) return 0u;
  if (const auto number = parse_integer<unsigned>(path)) return *number;
  return fail(ErrorCode::kInvalidArgument, "'/{}' is not the number of a database, as /0", path);
}

// Braces would change a key's slot, and the rest of what is refused stands for other things in patterns.
Status check_prefix(const std::string& prefix) {
  const bool plain = std::ranges::all_of(prefix, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:/").find(c) != std::string_view::npos;
  });
  if (plain && !prefix.empty() && prefix.size() <= 128) return {};
  return fail(ErrorCode::kInvalidArgument, "prefix '{}': write 1 to 128 letters, digits, and - _ . : /", prefix);
}

// The seconds of the option of that name.
Result<double> seconds_of(const TierSpec& spec, const std::string& option) {
  const std::string text = spec.text(option);
  const auto seconds = parse_duration(text);
  if (!seconds) return fail_in(option, seconds.error());
  if (*seconds > 0 && *seconds <= kTimeoutMax) return *seconds;
  return fail(ErrorCode::kInvalidArgument, "{} '{}': write more than 0 and at most {:.0f} s", option, text,
              kTimeoutMax);
}

Status check_redis(const TierSpec& spec) {
  SHALE_TRY(parse_server(spec.server));
  SHALE_TRY(parse_database(spec.path));
  SHALE_TRY(check_prefix(spec.text("prefix")));
  SHALE_TRY(seconds_of(spec, "timeout"));
  SHALE_TRY(seconds_of(spec, "deadline"));
  return {};
}

// Whoever reads and writes there, and over TLS or not.
std::string redis_place(const TierSpec& spec) {
  const RedisNode node = parse_server(spec.server)->node;
  return fmt::format("redis {}:{}/{} {}", node.host, node.port, *parse_database(spec.path), spec.text("prefix"));
}

// The first line of the file, or the environment's.
Result<std::string> password(const std::string& file) {
  if (file.empty()) {
    const char* given = std::getenv(kPasswordVariable);
    return given ? std::string(given) : std::string();
  }
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line.empty()) {
    return fail(ErrorCode::kInvalidArgument, "password_file '{}' cannot be read, or its first line is empty", file);
  }
  return line;
}

Result<std::unique_ptr<Tier>> make_redis_tier(const TierSpec& spec, bool secure, const Clock& clock) {
  SHALE_ASSIGN(Server server, parse_server(spec.server));
  RedisAccess access;
  access.user = std::move(server.user);
  SHALE_ASSIGN(access.password, password(spec.text("password_file")));
  SHALE_ASSIGN(access.database, parse_database(spec.path));
  SHALE_ASSIGN(access.timeout_s, seconds_of(spec, "timeout"));
  SHALE_ASSIGN(access.deadline_s, seconds_of(spec, "deadline"));
  if (secure) {
    SHALE_ASSIGN(access.tls, TlsContext::make(spec.text("ca")));
  }
  return RedisTier::open(std::make_unique<RedisTier>(spec, std::move(server.node), std::move(access), clock),
                         spec.late);
}

TierScheme scheme(bool secure) {
  TierScheme scheme{
      .name = "redis",
      .meaning = secure ? "the same over TLS" : "a Redis server or cluster that many processes share",
      .place = TierScheme::Place::kServer,
      .server_example = secure ? "//cache.example:6379" : "//localhost:6379",
      .texts = {{"prefix", "TEXT", "shale", "what keys begin with"},
                {"timeout", "SECONDS", "2s", "for how long nothing may come of an answer"},
                {"deadline", "SECONDS", "10s", "in which an operation is done, with all its attempts"},
                {"password_file", "FILE", "", "whose first line is the password (default: $SHALE_REDIS_PASSWORD)"}},
      .check = check_redis,
      .place_of = redis_place};
  if (secure) {
    scheme.texts.push_back({"ca", "FILE", "", "certificates to trust, in PEM, in place of the system's"});
    scheme.make = [](const TierSpec& spec, const Clock& clock) { return make_redis_tier(spec, true, clock); };
  } else {
    scheme.make = [](const TierSpec& spec, const Clock& clock) { return make_redis_tier(spec, false, clock); };
  }
  return scheme;
}

}  // namespace

TierScheme redis_scheme() { return scheme(false); }
TierScheme rediss_scheme() { return scheme(true); }

}  // namespace shale
