// KV events over ZeroMQ, as vLLM publishes them: to whoever subscribes, and again to whoever missed some.
//
//   PUB     [topic, sequence, batch]
//   ROUTER  asked [client, "", sequence], answers [client, "", topic, sequence, batch] for every batch from there on
//   that
//           is still kept, and at the end [client, "", "", -1, ""]
//
// A sequence is 64 bits, big endian, from 0; a batch is MessagePack, [seconds since 1970, [event …], 0]
// (docs/formats/kv_events.md).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cache/kv_events.h"
#include "core/error.h"

namespace shale {

enum class KvEncoding { kMaps, kArrays };  // of an event: by its fields' names, or by their order, its type first

struct KvPublisherOptions {
  std::string endpoint = {};  // bound: tcp://HOST:PORT, where `*` is every address or any free port; ipc://PATH
  std::string replay = {};    // likewise; empty: nothing is sent again
  std::string topic = {};     // in front of every batch, for subscribers to choose by
  KvEncoding encoding = KvEncoding::kMaps;
  std::size_t buffer = 10'000;  // batches that are kept to be sent again, while they are at most 64 MiB together
};

// Sends from a thread of its own. A subscriber that is slow misses batches and holds up nobody.
class KvPublisher {
 public:
  // Both must outlive it. kIo where an endpoint cannot be bound, kInvalidArgument where it is none.
  static Result<std::unique_ptr<KvPublisher>> start(const KvPublisherOptions& options, KvEvents& events, Store& store);
  ~KvPublisher();

  // As bound, with the port; the second is empty where there is none.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;

 private:
  struct State;
  explicit KvPublisher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
