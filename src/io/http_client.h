// HTTP/1.1 requests by one thread that sleeps while they are in flight (libcurl's multi interface).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace shale {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The status and headers of an answer; their names are in lower case.
struct HttpHead {
  int status = 0;  // 0: there was no answer
  HttpHeaders headers;

  std::string_view header(std::string_view name) const;  // empty where there is none
};

struct HttpAnswer {
  HttpHead head;
  std::string body;      // what `take` was not asked to, at most kHttpBodyBytesMax
  std::string trouble;   // why the answer did not come, or not all of it; empty where it did
  bool refused = false;  // by `take`
};

inline constexpr std::size_t kHttpBodyBytesMax = std::size_t{8} << 20;

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};  // sent as it is
  HttpHeaders headers = {};
  std::vector<std::span<const std::byte>> body = {};  // of a PUT or POST; in memory until `done`
  std::string ca_file = {};                           // of who signs the server's certificate, in place of the system's
  double timeout_s = 10;                              // from when it is sent
  double connect_timeout_s = 3;
  // For so long, rounded up to seconds, nothing of it may move; the client does not end later than that for it, either.
  // 0: only the time-out bounds it.
  double stall_s = 0;
  // The bytes of an answer with a status of 2xx, as they come; false ends the request. Empty: they become `body`.
  std::function<bool(const HttpHead& head, std::span<const std::byte> bytes)> take = {};
  // Once, when its turn has come: the last chance to say what it is, as what waited is signed and timed anew.
  std::function<void(HttpRequest& request)> prepare = {};
  // Once, at the end. All three are called on the client's thread; none may block, and any may send.
  std::function<void(HttpAnswer&& answer)> done = {};
};

// Each lane has so many requests in flight at once, and its others wait in order. So requests that somebody waits for
// do not stand behind those that nobody waits for.
enum class HttpLane { kQuick, kReads, kWrites };

class HttpClient {
 public:
  struct Options {
    std::size_t quick_at_once = 256;  // that carry next to nothing
    std::size_t bulk_at_once = 16;    // of either other lane, whose bytes share the network
  };
  explicit HttpClient(const Options& options);
  // Ends when all that was sent has been answered; what waits for a later time is sent at once.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any thread may call it; sends at the earliest after `delay_s`.
  void send(HttpLane lane, HttpRequest request, double delay_s = 0);
  // Whether the client is ending: then what failed is not worth another attempt.
  bool closing() const;

 private:
  struct Exchange;
  struct Lane;
  struct Curl;

  void run();
  void sort_in();
  void start_waiting();
  void start(Lane& lane, std::unique_ptr<Exchange> exchange);
  void finish_ended();
  void give_up_slow();
  void finish(void* easy, int code);
  int milliseconds_until_next() const;

  struct Sent {
    HttpLane lane;
    HttpRequest request;
    double due_s;
  };
  mutable std::mutex mutex_;  // guards what follows
  std::deque<Sent> sent_;
  bool closing_ = false;
  // Only the thread uses:
  double ending_s_ = 0;  // since when; 0: it is not
  std::unique_ptr<Curl> curl_;
  std::multimap<double, Sent> later_;  // by when they are due
  std::unique_ptr<Lane[]> lanes_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace shale
