// KV events over real sockets, decoded by the format (docs/formats/kv_events.md), and prompts as routers see them.
#include <gmock/gmock.h>
#include <zmq.h>

#include <cstring>
#include <map>
#include <set>
#include <variant>

#include "server/server_fixture.h"

namespace shale {
namespace {

using ::testing::HasSubstr;
using testing::ServerTest;

// MessagePack, as far as events use it: an independent reading of the specification.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  Json value() {
    const std::uint8_t tag = byte();
    if (tag < 0x80) return tag;
    if (tag < 0x90) return map(tag & 0xf);
    if (tag < 0xa0) return array(tag & 0xf);
    if (tag < 0xc0) return text(tag & 0x1f);
    switch (tag) {
      case 0xc0:
        return nullptr;
      case 0xca:
        return std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
      case 0xcb:
        return std::bit_cast<double>(number(8));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return number(1u << (tag - 0xcc));
      case 0xd9:
      case 0xda:
        return text(number(1u << (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
        return array(number(2u << (tag - 0xdc)));
      case 0xde:
      case 0xdf:
        return map(number(2u << (tag - 0xde)));
      default:
        ADD_FAILURE() << "no event has the tag " << int{tag};
        return nullptr;
    }
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
  std::uint64_t number(std::size_t width) {
    std::uint64_t result = 0;
    for (const char each : text(width)) result = result << 8 | static_cast<std::uint8_t>(each);
    return result;
  }
  std::string text(std::size_t size) {
    EXPECT_LE(size, bytes_.size());
    std::string taken(bytes_.substr(0, size));
    bytes_.remove_prefix(std::min(size, bytes_.size()));
    return taken;
  }
  Json array(std::size_t size) {
    Json list = Json::array();
    while (size-- > 0) list.push_back(value());
    return list;
  }
  Json map(std::size_t size) {
    Json object = Json::object();
    while (size-- > 0) {
      const std::string name = value();
      object[name] = value();
    }
    return object;
  }

  std::string_view bytes_;
};

struct Batch {
  std::string topic;
  std::uint64_t sequence = 0;
  Json events;
};

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<std::uint8_t>(byte);
  return number;
}

class Peer {
 public:
  Peer(int type, const std::string& endpoint) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int patience_ms = 10'000, linger = 0;
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0) << zmq_strerror(errno);
  }
  ~Peer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }

  void send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      zmq_send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    }
  }
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more;) {
      zmq_msg_t frame;
      zmq_msg_init(&frame);
      EXPECT_GE(zmq_msg_recv(&frame, socket_, 0), 0) << zmq_strerror(errno);
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      more = zmq_msg_more(&frame);
      zmq_msg_close(&frame);
    }
    return frames;
  }

 private:
  void* context_;
  void* socket_;
};

Batch batch_of(std::string_view topic, std::string_view sequence, std::string_view payload) {
  EXPECT_EQ(sequence.size(), 8u);
  Unpacker unpacker(payload);
  const Json batch = unpacker.value();
  EXPECT_TRUE(unpacker.at_end());
  EXPECT_EQ(batch.size(), 3u);
  EXPECT_GT(batch.at(0).get<double>(), 1.6e9);
  EXPECT_EQ(batch.at(2), 0);
  return {std::string(topic), big_endian(sequence), batch.at(1)};
}

class KvEventsTest : public ServerTest {
 protected:
  void serve(KvPublisherOptions options = {}, std::uint32_t block_tokens = 16, std::uint32_t pool_blocks = 256) {
    server_.reset();
    cache_options_.events = std::make_shared<KvEvents>(
        KvEventsOptions{.block_tokens = block_tokens, .tiers = {KvMedium::kCpu, KvMedium::kStorage}});
    open(pool_blocks);
    options.endpoint = "tcp://127.0.0.1:*";
    options.replay = "tcp://127.0.0.1:*";
    ServerOptions with;
    with.kv_events = options;
    start(with);
  }
  const KvPublisher& publisher() { return *server_->kv_publisher(); }

  std::vector<Batch> replayed(std::uint64_t from) {
    Peer peer(ZMQ_DEALER, publisher().replay_endpoint());
    std::string sequence;
    for (int shift = 56; shift >= 0; shift -= 8) sequence += static_cast<char>(from >> shift);
    peer.send({"", sequence});
    std::vector<Batch> batches;
    while (true) {
      const std::vector<std::string> frames = peer.receive();
      if (frames.size() != 4) {
        ADD_FAILURE() << frames.size() << " frames";
        return batches;
      }
      EXPECT_EQ(frames[0], "");
      if (big_endian(frames[2]) == ~std::uint64_t{0}) {
        EXPECT_EQ(frames[1] + frames[3], "");
        return batches;
      }
      batches.push_back(batch_of(frames[1], frames[2], frames[3]));
    }
  }

  // Waits until what was told says that all of the prompt's whole blocks are on the medium.
  static bool holds(const std::vector<Batch>& batches, const std::vector<std::int32_t>& prompt, const char* medium) {
    std::map<std::uint64_t, std::vector<std::int32_t>> chains;  // by name: tokens up to the block's end
    std::set<std::vector<std::int32_t>> there;
    for (const Batch& batch : batches) {
      for (const Json& event : batch.events) {
        if (event.at("type") == "AllBlocksCleared") there.clear();
        if (event.value("medium", "") != medium) continue;
        if (event.at("type") == "BlockRemoved") {
          for (const Json& name : event.at("block_hashes")) there.erase(chains.at(name));
          continue;
        }
        std::vector<std::int32_t> chain;
        if (!event.at("parent_block_hash").is_null()) chain = chains.at(event.at("parent_block_hash"));
        const std::vector<std::int32_t> tokens = event.at("token_ids");
        const std::size_t size = event.at("block_size");
        EXPECT_EQ(tokens.size(), size * event.at("block_hashes").size());
        for (std::size_t i = 0; i < event.at("block_hashes").size(); ++i) {
          chain.insert(chain.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i * size),
                       tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
          chains[event.at("block_hashes")[i]] = chain;
          there.insert(chain);
        }
      }
    }
    return there.contains({prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(prompt.size() % 16)});
  }
  template <class Condition>
  bool comes(const Condition& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // What of the prompt is stored as the system message.
  static std::vector<std::int32_t> system_part(const std::vector<std::int32_t>& prompt) {
    return {prompt.begin(), prompt.begin() + 32};
  }
  std::vector<std::int32_t> rendered(const Json& body) {
    return posted("/v1/chat/completions/render", body)["token_ids"];
  }
};

TEST_F(KvEventsTest, SubscribersHearWhatThePoolHoldsNow) {
  serve({.topic = "kv@here"});
  Peer subscriber(ZMQ_SUB, publisher().endpoint());
  // A subscription takes a moment; whatever is missed until then is replayed.
  std::vector<Batch> batches;
  const std::vector<std::int32_t> prompt = rendered(chat("What is shale?"));
  posted("/v1/chat/completions", chat("What is shale?"));
  EXPECT_TRUE(comes([&] { return holds(replayed(0), prompt, "GPU"); }));
  posted("/v1/chat/completions", chat("And what is slate, that other stone, which is so much like it?"));
  const auto frames = subscriber.receive();
  ASSERT_EQ(frames.size(), 3u);
  const Batch first = batch_of(frames[0], frames[1], frames[2]);
  EXPECT_EQ(first.topic, "kv@here");
  batches = replayed(0);
  ASSERT_GT(batches.size(), first.sequence);
  EXPECT_EQ(batches[0].events[0].at("type"), "AllBlocksCleared");
  for (std::size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i].sequence, i);
  EXPECT_EQ(batches[first.sequence].events, first.events);
  EXPECT_TRUE(holds(batches, prompt, "GPU"));
  // Another batch may come between the two.
  EXPECT_TRUE(comes([&] { return replayed(first.sequence + 1).size() + first.sequence + 1 == replayed(0).size(); }));
  EXPECT_TRUE(replayed(1'000'000).empty());
}

TEST_F(KvEventsTest, TellWhatLiesInMemoryAndOnPrivateDisksToo) {
  serve();
  const Json ask = chat("What is shale?");
  const std::vector<std::int32_t> prompt = rendered(ask);
  posted("/v1/chat/completions", ask);
  EXPECT_TRUE(comes([&] { return holds(replayed(0), system_part(prompt), "CPU"); }));
  EXPECT_TRUE(comes([&] { return holds(replayed(0), system_part(prompt), "STORAGE"); }));
}

TEST_F(KvEventsTest, SaltsAreNobodysBusiness) {
  serve();
  const Json ask = chat("What is shale?", {{"cache_salt", "mine"}});
  const std::vector<std::int32_t> prompt = rendered(ask);
  posted("/v1/chat/completions", ask);
  // What is stored behind it is told of.
  Json other = chat("What is slate?");
  other["messages"][0]["content"] = "Of all that there is you know metamorphic rocks alone, and say so.";
  posted("/v1/chat/completions", other);
  ASSERT_TRUE(comes([&] { return holds(replayed(0), system_part(rendered(other)), "STORAGE"); }));
  for (const char* medium : {"GPU", "CPU", "STORAGE"}) {
    EXPECT_FALSE(holds(replayed(0), prompt, medium));
    EXPECT_FALSE(holds(replayed(0), system_part(prompt), medium));
  }
}

TEST_F(KvEventsTest, WhatThePoolGivesUpIsTold) {
  serve({}, 16, 40);
  const Json ask = chat("What is shale, and what is it that the others share with it but their beginning?");
  const std::vector<std::int32_t> prompt = rendered(ask);
  posted("/v1/chat/completions", ask);
  EXPECT_TRUE(comes([&] { return holds(replayed(0), prompt, "GPU"); }));
  for (int i = 0; i < 8; ++i) posted("/v1/chat/completions", chat(std::string(200, static_cast<char>('a' + i))));
  EXPECT_TRUE(comes([&] { return !holds(replayed(0), prompt, "GPU"); }));
}

TEST_F(KvEventsTest, OlderConsumersGetArrays) {
  serve({.encoding = KvEncoding::kArrays}, 32);
  posted("/v1/chat/completions", chat("What is shale?"));
  const auto in_pool = [&] {
    std::optional<Json> found;  // tiers may tell of theirs first
    for (const Batch& batch : replayed(0)) {
      for (const Json& event : batch.events) {
        if (!found && event.size() == 8 && event[6] == "GPU") found = event;
      }
    }
    return found;
  };
  ASSERT_TRUE(comes([&] { return in_pool().has_value(); }));
  EXPECT_EQ(replayed(0)[0].events[0], Json::array({"AllBlocksCleared"}));
  const Json stored = *in_pool();
  EXPECT_EQ(stored[0], "BlockStored");
  EXPECT_EQ(stored[3].size(), 32 * stored[1].size());
  EXPECT_EQ(stored[4], 32);
}

TEST_F(KvEventsTest, OnlySoMuchIsKeptToBeSentAgain) {
  serve({.buffer = 2});
  for (int i = 0; i < 4; ++i) {
    const Json ask = chat(std::string(100, static_cast<char>('a' + i)));
    posted("/v1/chat/completions", ask);
    EXPECT_TRUE(comes([&] { return !replayed(static_cast<std::uint64_t>(i)).empty(); })) << "a batch each, at least";
  }
  const std::vector<Batch> batches = replayed(0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[1].sequence, batches[0].sequence + 1);
  EXPECT_GE(batches[0].sequence, 2u);
}

TEST_F(KvEventsTest, EndpointsThatAreNoneAreRefused) {
  cache_options_.events = std::make_shared<KvEvents>(KvEventsOptions{});
  open();
  const auto refused = [&](const std::string& endpoint) {
    ServerOptions options;
    options.http.port = 0;
    options.kv_events = {.endpoint = endpoint};
    const auto server = Server::start(options, *engine_, clock_);
    return server ? std::string() : server.error().message;
  };
  EXPECT_THAT(refused("localhost"), HasSubstr("KV events at 'localhost': Invalid argument; give tcp://HOST:PORT"));
  EXPECT_EQ(refused("tcp://127.0.0.1:*"), "");
}

TEST_F(ServerTest, RendersPromptsForRouters) {
  start();
  const Json whole = posted("/v1/completions/render", {{"prompt", "Shale is"}, {"max_tokens", 3}});
  ASSERT_TRUE(whole.is_array());
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["model"], "tiny");
  EXPECT_EQ(whole[0]["sampling_params"]["max_tokens"], 3);
  EXPECT_THAT(whole[0]["request_id"].get<std::string>(), ::testing::StartsWith("cmpl-"));
  const Json answered = posted("/v1/completions", {{"prompt", "Shale is"}, {"max_tokens", 3}});
  EXPECT_EQ(whole[0]["token_ids"].size(), answered["usage"]["prompt_tokens"]);
  const Json tokens = {{"prompt", {5, 6, 7}}, {"max_tokens", 3}};
  EXPECT_EQ(posted("/v1/completions/render", tokens)[0]["token_ids"], Json::array({5, 6, 7}));

  const Json turn = posted("/v1/chat/completions/render", chat("What is shale?"));
  ASSERT_TRUE(turn.is_object());
  EXPECT_EQ(turn["token_ids"].size(), posted("/v1/chat/completions", chat("What is shale?"))["usage"]["prompt_tokens"]);
  EXPECT_EQ(post("/v1/chat/completions/render", {{"messages", Json::array()}})->status, 400);
  EXPECT_EQ(client().Get("/v1/completions/render")->status, 405);
}

}  // namespace
}  // namespace shale
