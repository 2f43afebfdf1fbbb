// A bucket in this process: answers what the S3 tier asks, as S3 does or as other servers do, and errs on policy. It
// checks signatures, of credentials that it leaves in the environment. One thread a connection.
#pragma once

#include <arpa/inet.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "io/s3_signer.h"
#include "support/loopback_address.h"

namespace shale::testing {

struct S3Asked {
  std::string method, path, query;  // as they were sent
  std::map<std::string, std::string> headers;
  std::string body;
};

inline bool is_list(const S3Asked& asked) { return asked.query.find("list-type") != std::string::npos; }

struct S3Answer {
  int status = 200;
  std::string body = {};
  std::map<std::string, std::string> headers = {};
  double delay_s = 0;                   // before anything is sent
  std::optional<std::size_t> cut = {};  // the connection ends after so many bytes of the body
  double pause_s = 0;                   // in the middle of the body
};

struct S3ServerOptions {
  std::string bucket = "shale";
  S3Credentials credentials = {"shale", "shale-secret", ""};
  bool ranges = true;       // false: answers all of an object with 200, as `rclone serve s3`
  bool conditions = true;   // false: ignores If-None-Match
  std::size_t page = 1000;  // keys of a list
  std::int64_t clock_ahead_s = 0;
  // What it answers in place of, or around, `right`. Called on any thread.
  std::function<S3Answer(const S3Asked& asked, S3Answer right)> fault = {};
};

class S3Server {
 public:
  explicit S3Server(S3ServerOptions options = {})
      : options_(std::move(options)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // OpenSSL registers what cleans up after it when it is first used. A static server is to be destroyed before that
    // runs: threads that end beside it free what it frees.
    (void)sha256_hex("");
    sockaddr_in address = loopback_address();
    socklen_t size = sizeof address;
    (void)bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    (void)listen(listener_, 512);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::jthread([this] { accept_all(); });
    setenv("AWS_ACCESS_KEY_ID", options_.credentials.access_key.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", options_.credentials.secret_key.c_str(), 1);
  }
  ~S3Server() {
    closing_ = true;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    }
    threads_.clear();
    close(listener_);
  }

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string options() const { return fmt::format("endpoint={}&region=us-east-1", endpoint()); }
  std::string url(std::string_view prefix, std::string_view more_options = {}) const {
    return fmt::format("s3://{}/{}?{}{}", options_.bucket, prefix, options(), more_options);
  }
  void set_fault(std::function<S3Answer(const S3Asked&, S3Answer)> fault) {
    const std::lock_guard lock(mutex_);
    options_.fault = std::move(fault);
  }
  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void put(const std::string& key, std::string bytes) {
    const std::lock_guard lock(mutex_);
    objects_[key] = std::move(bytes);
  }
  // As though so many seconds had passed since all was written.
  void age(std::time_t seconds) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, written] : written_) written -= seconds;
  }
  std::uint64_t asked(std::string_view method) const {
    const std::lock_guard lock(mutex_);
    const auto count = asked_.find(method);
    return count == asked_.end() ? 0 : count->second;
  }

 private:
  void accept_all() {
    for (;;) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      const int on = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const std::lock_guard lock(mutex_);
      connections_.insert(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string received;
    while (auto asked = next_request(connection, received)) {
      if (!send_answer(connection, *asked, answer(*asked))) break;
    }
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
    close(connection);
  }

  static bool receive(int connection, std::string& received) {
    char buffer[65536];
    const ssize_t count = recv(connection, buffer, sizeof buffer, 0);
    if (count > 0) received.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  static std::optional<S3Asked> next_request(int connection, std::string& received) {
    std::size_t head = 0;
    while ((head = received.find("\r\n\r\n")) == std::string::npos) {
      if (!receive(connection, received)) return std::nullopt;
    }
    S3Asked asked;
    std::string_view lines = std::string_view(received).substr(0, head + 2);
    const auto line = [&lines] {
      const std::size_t end = lines.find("\r\n");
      const std::string_view first = lines.substr(0, end);
      lines.remove_prefix(end + 2);
      return first;
    };
    const std::string_view first = line();
    const std::size_t target = first.find(' ') + 1, end = first.rfind(' ');
    const std::string_view uri = first.substr(target, end - target);
    asked.method = first.substr(0, target - 1);
    asked.path = uri.substr(0, uri.find('?'));
    if (asked.path.size() < uri.size()) asked.query = uri.substr(asked.path.size() + 1);
    while (!lines.empty()) {
      const std::string_view header = line();
      const std::size_t colon = std::min(header.find(':'), header.size() - 1);
      std::string name(header.substr(0, colon));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      std::string_view value = header.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      asked.headers[name] = value;
    }
    received.erase(0, head + 4);
    const auto length = asked.headers.find("content-length");
    const std::size_t bytes = length == asked.headers.end() ? 0 : std::stoull(length->second);
    while (received.size() < bytes) {
      if (!receive(connection, received)) return std::nullopt;
    }
    asked.body = received.substr(0, bytes);
    received.erase(0, bytes);
    return asked;
  }

  std::time_t now() const { return std::time(nullptr) + options_.clock_ahead_s; }

  bool send_answer(int connection, const S3Asked& asked, const S3Answer& answer) {
    wait(answer.delay_s);
    std::string head =
        fmt::format("HTTP/1.1 {} Answer\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", answer.status, fmt::gmtime(now()));
    for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
    if (!answer.headers.contains("Content-Length")) head += fmt::format("Content-Length: {}\r\n", answer.body.size());
    if (!send_all(connection, head + "\r\n")) return false;
    if (asked.method == "HEAD") return true;
    const std::string_view body = std::string_view(answer.body).substr(0, answer.cut.value_or(answer.body.size()));
    const std::size_t half = answer.pause_s > 0 ? body.size() / 2 : 0;
    if (!send_all(connection, body.substr(0, half))) return false;
    wait(answer.pause_s);
    return send_all(connection, body.substr(half)) && !answer.cut && !closing_;
  }

  // Ends early with the server.
  void wait(double seconds) const {
    for (double waited = 0; waited < seconds && !closing_; waited += 0.005) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  static bool send_all(int connection, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  static S3Answer complaint(int status, std::string_view code) {
    return {status, fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>no</Message></Error>", code)};
  }

  // Why it is refused; nothing where it is signed as it should be.
  std::optional<S3Answer> refused(const S3Asked& asked) const {
    const auto header = [&asked](const std::string& name) {
      const auto at = asked.headers.find(name);
      return at == asked.headers.end() ? std::string() : at->second;
    };
    const std::string authorization = header("authorization");
    const auto between = [&authorization](std::string_view begin, std::string_view end) {
      const std::size_t from = authorization.find(begin);
      if (from == std::string::npos) return std::string();
      return authorization.substr(from + begin.size(), authorization.find(end, from) - from - begin.size());
    };
    if (between("Credential=", "/") != options_.credentials.access_key) return complaint(403, "InvalidAccessKeyId");
    std::tm utc{};
    strptime(header("x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &utc);
    const std::time_t time = timegm(&utc);
    if (std::abs(time - now()) > 15 * 60) return complaint(403, "RequestTimeTooSkewed");
    HttpHeaders headers;
    const std::string names = ";" + between("SignedHeaders=", ",") + ";";
    for (const auto& [name, value] : asked.headers) {
      const bool is_signed = names.find(";" + name + ";") != std::string::npos;
      if (is_signed && name != "x-amz-date" && name != "x-amz-security-token") headers.emplace_back(name, value);
    }
    const std::string payload = header("x-amz-content-sha256");
    if (payload != kUnsignedPayload && payload != sha256_hex(asked.body))
      return complaint(400, "XAmzContentSHA256Mismatch");
    sign({asked.method, asked.path, asked.query, payload}, {"us-east-1"}, options_.credentials, time, headers);
    if (headers.back().second != authorization) return complaint(403, "SignatureDoesNotMatch");
    return std::nullopt;
  }

  static std::string decoded(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
      plain += text[i] == '%' ? static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)) : text[i];
      if (text[i] == '%') i += 2;
    }
    return plain;
  }

  static std::string parameter(const S3Asked& asked, std::string_view name) {
    const std::string query = "&" + asked.query + "&", wanted = fmt::format("&{}=", name);
    const std::size_t at = query.find(wanted);
    if (at == std::string::npos) return {};
    const std::size_t begin = at + wanted.size();
    return decoded(std::string_view(query).substr(begin, query.find('&', begin) - begin));
  }

  S3Answer answer(const S3Asked& asked) {
    std::function<S3Answer(const S3Asked&, S3Answer)> fault;
    S3Answer right;
    {
      const std::lock_guard lock(mutex_);
      ++asked_[asked.method];
      fault = options_.fault;
    }
    if (auto refusal = refused(asked)) {
      right = std::move(*refusal);
    } else {
      const std::lock_guard lock(mutex_);
      right = answer_right(asked);
    }
    return fault ? fault(asked, std::move(right)) : right;
  }

  S3Answer answer_right(const S3Asked& asked) {
    const std::string bucket = "/" + options_.bucket;
    const std::string path = decoded(asked.path);
    if (path != bucket && !path.starts_with(bucket + "/")) return complaint(404, "NoSuchBucket");
    const std::string key = path.substr(std::min(bucket.size() + 1, path.size()));
    if (key.empty()) return list(parameter(asked, "prefix"), parameter(asked, "continuation-token"));
    const auto object = objects_.find(key);
    if (asked.method == "PUT") {
      const bool only_new = options_.conditions && asked.headers.contains("if-none-match");
      if (only_new && object != objects_.end()) return complaint(412, "PreconditionFailed");
      if (!asked.headers.contains("x-amz-copy-source")) objects_[key] = asked.body;
      written_[key] = now();
      return {200, "", {{"ETag", "\"not a hash\""}}};
    }
    if (asked.method == "DELETE") {
      objects_.erase(key);
      return {204};
    }
    if (object == objects_.end()) return complaint(404, "NoSuchKey");
    return get(asked, object->second, written_[key]);
  }

  S3Answer get(const S3Asked& asked, const std::string& bytes, std::time_t written) const {
    S3Answer answer{200, bytes, {{"Last-Modified", fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(written))}}};
    if (asked.method == "HEAD") answer.headers["Content-Length"] = std::to_string(bytes.size());
    const auto range = asked.headers.find("range");
    if (range == asked.headers.end() || !options_.ranges) return answer;
    unsigned long long first = 0, last = 0;
    if (std::sscanf(range->second.c_str(), "bytes=%llu-%llu", &first, &last) != 2) return answer;
    if (first >= bytes.size() || last < first) return complaint(416, "InvalidRange");
    last = std::min<unsigned long long>(last, bytes.size() - 1);
    answer.status = 206;
    answer.body = bytes.substr(first, last - first + 1);
    answer.headers["Content-Range"] = fmt::format("bytes {}-{}/{}", first, last, bytes.size());
    return answer;
  }

  S3Answer list(const std::string& prefix, const std::string& token) const {
    std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3\">";
    std::size_t count = 0;
    for (auto at = objects_.lower_bound(std::max(prefix, token)); at != objects_.end(); ++at) {
      if (!at->first.starts_with(prefix)) break;
      if (count++ == options_.page) {
        xml += fmt::format("<NextContinuationToken>{}</NextContinuationToken>", at->first);
        break;
      }
      xml += fmt::format("<Contents><Key>{}</Key><Size>{}</Size></Contents>", at->first, at->second.size());
    }
    return {200, xml + fmt::format("<IsTruncated>{}</IsTruncated></ListBucketResult>", count > options_.page)};
  }

  S3ServerOptions options_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> closing_ = false;
  mutable std::mutex mutex_;  // guards what follows, and options_.fault
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::time_t> written_;
  std::map<std::string, std::uint64_t, std::less<>> asked_;  // by method
  std::set<int> connections_;
  std::vector<std::jthread> threads_;
  std::jthread accepting_;
};

}  // namespace shale::testing
