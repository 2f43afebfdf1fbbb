#include "io/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "core/clock.h"
#include "io/io_threads.h"

namespace shale {
namespace {

constexpr std::size_t kLanes = 3;
constexpr long kBufferBytes = 512 << 10;  // libcurl's, a connection
constexpr int kSleepMsMax = 1000;
constexpr std::size_t kHeadersMax = 100;

double now_s() { return RealClock().now_s(); }

long milliseconds(double seconds) { return std::max(1L, std::lround(seconds * 1e3)); }

}  // namespace

std::string_view HttpHead::header(std::string_view name) const {
  const auto at = std::ranges::find(headers, name, &HttpHeaders::value_type::first);
  return at == headers.end() ? std::string_view() : std::string_view(at->second);
}

// One request on its way, as libcurl's callbacks see it.
struct HttpClient::Exchange {
  HttpRequest request;
  HttpAnswer answer;
  Lane* lane = nullptr;
  std::size_t body_bytes = 0, sent_bytes = 0;
  curl_slist* headers = nullptr;
  char trouble[CURL_ERROR_SIZE] = {};

  explicit Exchange(HttpRequest asked) : request(std::move(asked)) {}
  ~Exchange() { curl_slist_free_all(headers); }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    HttpHead& head = static_cast<Exchange*>(self)->answer.head;
    std::string_view line(data, size);
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {
      head = {};  // of "100 Continue" nothing stays
      const std::size_t space = line.find(' ');
      head.status = space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
      if (head.headers.size() == kHeadersMax) return 0;
      std::string name(line.substr(0, colon));
      std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
      const std::size_t value = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
      head.headers.emplace_back(std::move(name), line.substr(value));
    }
    return size;
  }

  static std::size_t on_bytes(char* data, std::size_t, std::size_t size, void* self) {
    Exchange& exchange = *static_cast<Exchange*>(self);
    const HttpRequest& request = exchange.request;
    HttpAnswer& answer = exchange.answer;
    const bool good = answer.head.status >= 200 && answer.head.status < 300;
    if (good && request.take) {
      answer.refused = !request.take(answer.head, std::as_bytes(std::span(data, size)));
      return answer.refused ? 0 : size;
    }
    if (size > kHttpBodyBytesMax - answer.body.size()) return 0;
    answer.body.append(data, size);
    return size;
  }

  static std::size_t on_send(char* data, std::size_t, std::size_t size, void* self) {
    Exchange& exchange = *static_cast<Exchange*>(self);
    std::size_t skip = exchange.sent_bytes, copied = 0;
    for (const auto& piece : exchange.request.body) {
      const std::size_t first = std::min(skip, piece.size());
      const std::size_t count = std::min(piece.size() - first, size - copied);
      std::memcpy(data + copied, piece.data() + first, count);
      skip -= first;
      copied += count;
    }
    exchange.sent_bytes += copied;
    return copied;
  }

  // libcurl sends again what a connection that had been closed did not take.
  static int on_seek(void* self, curl_off_t offset, int origin) {
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    static_cast<Exchange*>(self)->sent_bytes = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }
};

struct HttpClient::Lane {
  std::size_t at_once = 0;
  std::size_t in_flight = 0;
  std::deque<std::unique_ptr<Exchange>> waiting = {};
};

struct HttpClient::Curl {
  CURLM* multi = nullptr;
  std::vector<CURL*> spare;
  std::unordered_map<CURL*, std::unique_ptr<Exchange>> in_flight;

  Curl() {
    [[maybe_unused]] static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
    multi = curl_multi_init();
  }
  ~Curl() {
    for (CURL* easy : spare) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
};

HttpClient::HttpClient(const Options& options) : curl_(std::make_unique<Curl>()), lanes_(new Lane[kLanes]) {
  lanes_[static_cast<int>(HttpLane::kQuick)].at_once = options.quick_at_once;
  lanes_[static_cast<int>(HttpLane::kReads)].at_once = options.bulk_at_once;
  lanes_[static_cast<int>(HttpLane::kWrites)].at_once = options.bulk_at_once;
  // Connections are kept for as many as may be in flight, so that a burst finds them open.
  curl_multi_setopt(curl_->multi, CURLMOPT_MAXCONNECTS,
                    static_cast<long>(options.quick_at_once + 2 * options.bulk_at_once));
  thread_ = std::jthread([this] { run(); });
}

HttpClient::~HttpClient() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  curl_multi_wakeup(curl_->multi);
  thread_.join();
}

bool HttpClient::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void HttpClient::send(HttpLane lane, HttpRequest request, double delay_s) {
  {
    const std::lock_guard lock(mutex_);
    sent_.push_back({lane, std::move(request), now_s() + delay_s});
  }
  curl_multi_wakeup(curl_->multi);
}

void HttpClient::run() {
  stand_back(StandBack::kForReads);
  block_broken_pipes();
  for (;;) {
    const bool ending = closing();  // whoever closes sends no more, so what is taken in next is all
    sort_in();
    start_waiting();
    int running = 0;
    curl_multi_perform(curl_->multi, &running);
    finish_ended();
    if (ending) give_up_slow();
    const bool waits =
        std::ranges::any_of(std::span(lanes_.get(), kLanes), [](const Lane& l) { return !l.waiting.empty(); });
    if (ending && !waits && curl_->in_flight.empty() && later_.empty()) {
      const std::lock_guard lock(mutex_);
      if (sent_.empty()) return;
    }
    curl_multi_poll(curl_->multi, nullptr, 0, milliseconds_until_next(), nullptr);
  }
}

void HttpClient::sort_in() {
  std::deque<Sent> sent;
  {
    const std::lock_guard lock(mutex_);
    sent.swap(sent_);
  }
  for (Sent& one : sent) later_.emplace(one.due_s, std::move(one));
  const double due_s = closing() ? INFINITY : now_s();
  while (!later_.empty() && later_.begin()->first <= due_s) {
    Sent& one = later_.begin()->second;
    Lane& lane = lanes_[static_cast<int>(one.lane)];
    lane.waiting.push_back(std::make_unique<Exchange>(std::move(one.request)));
    later_.erase(later_.begin());
  }
}

void HttpClient::start_waiting() {
  for (Lane& lane : std::span(lanes_.get(), kLanes)) {
    while (!lane.waiting.empty() && lane.in_flight < lane.at_once) {
      auto exchange = std::move(lane.waiting.front());
      lane.waiting.pop_front();
      start(lane, std::move(exchange));
    }
  }
}

void HttpClient::start(Lane& lane, std::unique_ptr<Exchange> exchange) {
  CURL* easy = curl_->spare.empty() ? curl_easy_init() : curl_->spare.back();
  if (!curl_->spare.empty()) curl_->spare.pop_back();
  Exchange& self = *exchange;
  self.lane = &lane;
  if (self.request.prepare) self.request.prepare(self.request);
  const HttpRequest& request = self.request;
  for (const auto& piece : request.body) self.body_bytes += piece.size();
  for (const auto& [name, value] : request.headers) {
    self.headers = curl_slist_append(self.headers, (name + (value.empty() ? ";" : ": " + value)).c_str());
  }
  self.headers = curl_slist_append(self.headers, "Expect:");  // the answer to which would cost a round trip
  const auto set = [easy](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});  // parallel requests are to have connections of their own
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_TIMEOUT_MS, milliseconds(request.timeout_s));
  if (request.stall_s > 0) {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);  // byte a second
    set(CURLOPT_LOW_SPEED_TIME, std::lround(std::ceil(request.stall_s)));
  }
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(request.connect_timeout_s, request.timeout_s)));
  if (!request.ca_file.empty()) set(CURLOPT_CAINFO, request.ca_file.c_str());
  set(CURLOPT_HTTPHEADER, self.headers);
  set(CURLOPT_ERRORBUFFER, self.trouble);
  set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  set(CURLOPT_HEADERDATA, &self);
  set(CURLOPT_WRITEFUNCTION, &Exchange::on_bytes);
  set(CURLOPT_WRITEDATA, &self);
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT") {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(self.body_bytes));
    set(CURLOPT_READFUNCTION, &Exchange::on_send);
    set(CURLOPT_READDATA, &self);
    set(CURLOPT_SEEKFUNCTION, &Exchange::on_seek);
    set(CURLOPT_SEEKDATA, &self);
  } else if (request.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  ++lane.in_flight;
  curl_->in_flight.emplace(easy, std::move(exchange));
  curl_multi_add_handle(curl_->multi, easy);
}

void HttpClient::finish_ended() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(curl_->multi, &left)) {
    if (message->msg == CURLMSG_DONE) finish(message->easy_handle, message->data.result);
  }
}

// What moves may take long, and nobody is to wait for it at the end.
void HttpClient::give_up_slow() {
  const double now = now_s();
  if (ending_s_ == 0) ending_s_ = now;
  std::vector<CURL*> slow;
  for (const auto& [easy, exchange] : curl_->in_flight) {
    const double stall_s = exchange->request.stall_s;
    if (stall_s > 0 && now >= ending_s_ + stall_s) slow.push_back(easy);
  }
  for (CURL* easy : slow) finish(easy, CURLE_OPERATION_TIMEDOUT);
}

void HttpClient::finish(void* easy, int code) {
  curl_multi_remove_handle(curl_->multi, easy);
  curl_easy_reset(easy);
  curl_->spare.push_back(easy);
  const auto exchange = std::move(curl_->in_flight.extract(easy).mapped());
  --exchange->lane->in_flight;
  if (code != CURLE_OK) {
    exchange->answer.trouble =
        exchange->trouble[0] ? exchange->trouble : curl_easy_strerror(static_cast<CURLcode>(code));
  }
  exchange->request.done(std::move(exchange->answer));
}

int HttpClient::milliseconds_until_next() const {
  {
    const std::lock_guard lock(mutex_);
    if (!sent_.empty()) return 0;
  }
  for (const Lane& lane : std::span(lanes_.get(), kLanes)) {
    if (!lane.waiting.empty() && lane.in_flight < lane.at_once) return 0;
  }
  if (later_.empty()) return kSleepMsMax;
  return static_cast<int>(std::clamp((later_.begin()->first - now_s()) * 1e3 + 1, 0.0, double{kSleepMsMax}));
}

}  // namespace shale
