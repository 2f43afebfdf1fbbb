// Requests to one bucket: addressed, signed, and sent again while that helps and time is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/http_client.h"
#include "io/s3_signer.h"

namespace shale {

struct S3ClientOptions {
  std::string bucket;
  std::string endpoint;  // "https://host[:port]", addressed by path; empty: AWS, addressed by virtual host
  std::string region;
  S3Credentials credentials = {};
  std::string credentials_from = {};  // for messages
  // What they are by now, once they are refused; nothing where there are none. May read files.
  std::function<std::optional<S3Credentials>()> credentials_now = {};
  std::string ca_file = {};  // in place of the system's
  // Of a call with all its attempts, from when the first is sent; of an upload, for which nothing of it may move.
  double timeout_s = 10;
};

struct S3Call {
  std::string method = "GET";
  HttpLane lane = HttpLane::kQuick;
  std::string key = {};  // of the object; empty: the bucket itself
  std::vector<std::pair<std::string, std::string>> query = {};
  HttpHeaders headers = {};
  std::vector<std::span<const std::byte>> body = {};  // in memory until `done`
  std::string body_sha256 = {};                       // of a body, where the connection is not by TLS
  // Gives the Range header, "bytes=0-4095", before each attempt, so that one goes on where the last was cut off.
  std::function<std::string()> range = {};
  std::function<bool(const HttpHead& head, std::span<const std::byte> bytes)> take = {};  // as HttpRequest's
  // Called on the client's thread with an answer of 2xx, 404 (no such object: said by S3, or without a body), 412 or
  // 416. Else kInvalidArgument: the bucket, the credentials or the region are wrong, and what to do; kFull;
  // kUnsupported: 501; kIo: what the last attempt met, and how many there were.
  std::function<void(Result<HttpAnswer> answer)> done = {};
};

class S3Client {
 public:
  explicit S3Client(S3ClientOptions options);

  void start(S3Call call);
  // Blocks until `done`, which it takes the place of.
  Result<HttpAnswer> wait(S3Call call);

  // What is sent for a call, but method and body: URL and signed headers, good for some minutes.
  void address(const S3Call& call, HttpRequest& request) const;
  bool tls() const { return endpoint_.starts_with("https:"); }
  std::string place() const;  // "bucket 'b' at https://…"

 private:
  struct Attempts;
  void attempt(const std::shared_ptr<Attempts>& attempts, double delay_s);
  void finish(const std::shared_ptr<Attempts>& attempts, HttpAnswer answer);
  Error error_of(const Attempts& attempts, const HttpAnswer& answer) const;
  bool corrects_clock(const HttpAnswer& answer);
  // Whether others are to be tried.
  bool renews_credentials(const Attempts& attempts, const HttpAnswer& answer);
  double end_s();

  const S3ClientOptions options_;
  std::string endpoint_;                          // scheme and host
  std::string host_;                              // as the Host header has it
  std::string path_prefix_;                       // of every path: "/" or "/bucket/"
  std::atomic<std::int64_t> clock_behind_s_ = 0;  // this machine's, of the server's
  mutable std::mutex credentials_mutex_;          // guards the next, which the client's thread alone changes
  S3Credentials credentials_;
  std::uint64_t renewals_ = 0;       // of them; of the client's thread, as what follows
  double look_for_others_at_s_ = 0;  // again, at the earliest
  double closing_end_s_ = 0;         // 0: it is not ending
  HttpClient http_;                  // last: its thread uses all of the above
};

}  // namespace shale
