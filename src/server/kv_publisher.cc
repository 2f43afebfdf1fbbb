#include "server/kv_publisher.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace shale {
namespace {

constexpr std::chrono::milliseconds kRound{10};  // how late an event may be
constexpr std::size_t kStoreEventsARound = 1024;
constexpr std::size_t kKeptBytesMax = std::size_t{64} << 20;
constexpr int kBehindMax = 10'000;  // batches that a subscriber may be behind before it misses some
constexpr std::string_view kMediums[] = {"GPU", "CPU", "STORAGE"};

using Bytes = std::vector<std::uint8_t>;
using SequenceBytes = std::array<char, 8>;  // big endian

SequenceBytes big_endian(std::uint64_t number) {
  SequenceBytes bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
  return bytes;
}

std::string_view view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::string_view view(const SequenceBytes& bytes) { return {bytes.data(), bytes.size()}; }

Json or_null(const std::optional<std::uint64_t>& number) { return number ? Json(*number) : Json(); }

// Names and values of an event's fields, in vLLM's order.
std::vector<std::pair<const char*, Json>> fields_of(const KvEvent& event) {
  const std::string_view medium = kMediums[static_cast<std::size_t>(event.medium)];
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return {{"type", "BlockStored"},
              {"block_hashes", event.blocks},
              {"parent_block_hash", or_null(event.parent)},
              {"token_ids", event.tokens},
              {"block_size", event.block_tokens},
              {"lora_id", nullptr},
              {"medium", medium},
              {"lora_name", nullptr}};
    case KvEvent::Kind::kRemoved:
      return {{"type", "BlockRemoved"}, {"block_hashes", event.blocks}, {"medium", medium}};
    case KvEvent::Kind::kCleared:
      break;
  }
  return {{"type", "AllBlocksCleared"}};
}

Bytes encode(const std::vector<KvEvent>& events, KvEncoding encoding) {
  Json list = Json::array();
  for (const KvEvent& event : events) {
    Json each = encoding == KvEncoding::kMaps ? Json::object() : Json::array();
    for (auto& [name, value] : fields_of(event)) {
      encoding == KvEncoding::kMaps ? each[name] = std::move(value) : each.emplace_back(std::move(value));
    }
    list.push_back(std::move(each));
  }
  const std::chrono::duration<double> since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return Json::to_msgpack(Json::array({since_1970.count(), std::move(list), 0}));
}

struct ContextEnd {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct SocketEnd {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Context = std::unique_ptr<void, ContextEnd>;
using Socket = std::unique_ptr<void, SocketEnd>;

Result<Socket> bound(void* context, int type, int behind_max, const std::string& endpoint, const char* what) {
  Socket socket(zmq_socket(context, type));
  const int linger = 0;
  const std::int64_t message_max = 1024;  // from others: a subscription, a question for replay
  const bool made = socket && zmq_setsockopt(socket.get(), ZMQ_LINGER, &linger, sizeof linger) == 0 &&
                    zmq_setsockopt(socket.get(), ZMQ_MAXMSGSIZE, &message_max, sizeof message_max) == 0 &&
                    zmq_setsockopt(socket.get(), ZMQ_SNDHWM, &behind_max, sizeof behind_max) == 0;
  if (made && zmq_bind(socket.get(), endpoint.c_str()) == 0) return socket;
  const bool malformed = made && (errno == EINVAL || errno == EPROTONOSUPPORT);
  return fail(malformed ? ErrorCode::kInvalidArgument : ErrorCode::kIo, "{} at '{}': {}{}", what, endpoint,
              zmq_strerror(errno), malformed ? "; give tcp://HOST:PORT, as in tcp://127.0.0.1:5557" : "");
}

std::string endpoint_of(void* socket) {
  std::array<char, 256> name = {};
  std::size_t size = name.size();
  return zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, name.data(), &size) == 0 ? name.data() : "";
}

// Never waits: what cannot be sent at once is dropped.
void send(void* socket, std::initializer_list<std::string_view> frames) {
  for (const std::string_view& frame : frames) {
    const int more = &frame + 1 < frames.end() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | more) < 0) return;
  }
}

// The frames of a message that has come; none where there is none.
std::vector<std::string> received(void* socket) {
  std::vector<std::string> frames;
  for (bool more = true; more;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    more = zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0;
    if (more) frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    more = more && zmq_msg_more(&frame);
    zmq_msg_close(&frame);
  }
  return frames;
}

}  // namespace

struct KvPublisher::State {
  const KvPublisherOptions options;
  KvEvents& events;
  Store& store;
  Context context{zmq_ctx_new()};
  Socket publish = {}, replay = {};
  std::string endpoint = {}, replay_endpoint = {};

  // The thread's own.
  std::uint64_t next = 0;
  std::deque<Bytes> kept = {};  // batches up to `next`
  std::size_t kept_bytes = 0;

  std::jthread thread = {};

  void run(const std::stop_token& stop);
  void publish_new();
  void keep(Bytes batch);
  void answer(const std::vector<std::string>& request);
};

void KvPublisher::State::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    publish_new();
    zmq_pollitem_t waited{.socket = replay.get(), .fd = 0, .events = ZMQ_POLLIN, .revents = 0};
    // One a round: whoever asks again and again holds up no event.
    if (zmq_poll(&waited, replay ? 1 : 0, kRound.count()) > 0) answer(received(replay.get()));
  }
}

void KvPublisher::State::publish_new() {
  for (const StoreEvent& event : store.take_events(kStoreEventsARound)) events.at_rest(event);
  const std::vector<KvEvent> news = events.take();
  if (news.empty()) return;
  Bytes batch = encode(news, options.encoding);
  send(publish.get(), {options.topic, view(big_endian(next)), view(batch)});
  ++next;
  keep(std::move(batch));
}

void KvPublisher::State::keep(Bytes batch) {
  if (!replay) return;
  kept_bytes += batch.size();
  kept.push_back(std::move(batch));
  while (kept.size() > options.buffer || (kept_bytes > kKeptBytesMax && kept.size() > 1)) {
    kept_bytes -= kept.front().size();
    kept.pop_front();
  }
}

void KvPublisher::State::answer(const std::vector<std::string>& request) {
  if (request.size() != 3 || request[2].size() != sizeof(std::uint64_t)) return;
  const std::string& client = request[0];
  std::uint64_t from = 0;
  for (const char byte : request[2]) from = from << 8 | static_cast<std::uint8_t>(byte);
  const std::uint64_t oldest = next - kept.size();
  for (std::uint64_t i = std::max(from, oldest); i < next; ++i) {
    send(replay.get(), {client, "", options.topic, view(big_endian(i)), view(kept[i - oldest])});
  }
  send(replay.get(), {client, "", "", view(big_endian(~std::uint64_t{0})), ""});
}

Result<std::unique_ptr<KvPublisher>> KvPublisher::start(const KvPublisherOptions& options, KvEvents& events,
                                                        Store& store) {
  std::unique_ptr<State> state(new State{.options = options, .events = events, .store = store});
  SHALE_ASSIGN(state->publish, bound(state->context.get(), ZMQ_PUB, kBehindMax, options.endpoint, "KV events"));
  state->endpoint = endpoint_of(state->publish.get());
  if (!options.replay.empty()) {
    const auto all_twice = static_cast<int>(2 * options.buffer + 2);  // so that no answer is cut short
    SHALE_ASSIGN(state->replay,
                 bound(state->context.get(), ZMQ_ROUTER, all_twice, options.replay, "replay of KV events"));
    state->replay_endpoint = endpoint_of(state->replay.get());
  }
  state->thread = std::jthread([&of = *state](const std::stop_token& stop) { of.run(stop); });
  return std::unique_ptr<KvPublisher>(new KvPublisher(std::move(state)));
}

KvPublisher::KvPublisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
KvPublisher::~KvPublisher() = default;

const std::string& KvPublisher::endpoint() const { return state_->endpoint; }
const std::string& KvPublisher::replay_endpoint() const { return state_->replay_endpoint; }

}  // namespace shale
