// One client's connection: reads a request, has it answered, sends the answer, and so on.
#pragma once

#include <array>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "http/http_hub.h"
#include "http/http_parser.h"
#include "http/http_server.h"
#include "http/http_transport.h"

namespace shale {

// Lives as long as the hub lists it or something is running for it. The loop's thread alone uses it. Reads ahead while
// it answers, a little: to see the client go, which ends the answer.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpHub& hub, std::unique_ptr<HttpTransport> transport, std::string address);
  ~HttpConnection();

  void start();
  const std::string& address() const { return address_; }
  // Whether its client is to send something, or to go: and since when.
  bool waits() const { return stage_ == Stage::kReading || stage_ == Stage::kLingering; }
  std::chrono::steady_clock::time_point waits_since() const { return waits_since_; }
  // Bytes of the body that is coming or being answered.
  std::size_t body_bytes() const { return body_bytes_; }

  // Answers that the request is refused, and closes.
  void refuse(HttpFailure failure);
  // Closes as soon as it is answered.
  void finish();
  // Closes at once.
  void close();

 private:
  enum class Stage { kReading, kAnswering, kLingering, kClosed };

  void read();
  void received(std::error_code error, std::size_t bytes);
  void next_request();
  void parse();
  bool look_at_head();
  void hold_body(std::size_t bytes);
  void drop_body();

  void work();
  void answered(HttpAnswer answer);
  void pump();
  void send_part(HttpSource::Part part);
  void respond(const HttpResponse& response);
  std::string head_of(const HttpResponse& response, std::optional<std::size_t> length) const;
  void send(std::string bytes);
  void write();
  void sent();
  void linger();

  void wait_at_most(std::chrono::milliseconds time);
  void wait_on();
  void out_of_time();

  HttpHub& hub_;
  const std::unique_ptr<HttpTransport> transport_;
  const std::string address_;
  Stage stage_ = Stage::kReading;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point waits_since_, deadline_;

  // Reading.
  std::array<char, 16384> buffer_;
  bool reading_ = false, client_done_ = false;
  std::string ahead_;  // received and not parsed
  std::optional<HttpParser> parser_;
  bool head_looked_at_ = false;
  std::string origin_;  // of the page that asks, where it may
  std::size_t body_bytes_ = 0;

  // Answering.
  bool working_ = false;             // a worker has the request
  std::atomic<bool> wanted_ = true;  // by its client; workers look at it, too
  std::unique_ptr<HttpSource> source_;
  bool begun_ = false, ended_ = false;  // of the answer
  bool chunked_ = false, close_after_ = false, bodiless_ = false;
  std::string out_, next_out_;  // what is being written, and what is next
  std::size_t written_ = 0;     // of `out_`
  bool writing_ = false;
};

}  // namespace shale
