#include "http/http_connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <ctime>
#include <exception>
#include <utility>

#include "core/parsing.h"
#include "http/http_access.h"

namespace shale {
namespace {

constexpr std::size_t kAheadMax = std::size_t{64} << 10;   // of what clients send before they are answered
constexpr std::size_t kWriteMax = std::size_t{64} << 10;   // at once; what HttpLimits::write is the time for
constexpr std::size_t kTrimFrom = std::size_t{256} << 10;  // bodies from here on leave much behind in the allocator

// Whether `token` is an item of a list, as in "keep-alive, TE".
bool lists(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (same_ignoring_case(trimmed(list.substr(0, comma), kHttpSpace), token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

HttpAnswer answer_of(HttpService& service, const HttpRequest& request, HttpWake wake) {
  try {
    return service.answer(request, std::move(wake));
  } catch (const std::exception&) {
    return service.refusal({500, "the request could not be served", request.peer});
  }
}

}  // namespace

HttpConnection::HttpConnection(HttpHub& hub, std::unique_ptr<HttpTransport> transport, std::string address)
    : hub_(hub), transport_(std::move(transport)), address_(std::move(address)), timer_(hub.loop) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::start() {
  parser_.emplace(hub_.limits);
  waits_since_ = std::chrono::steady_clock::now();
  wait_at_most(hub_.limits.head);
  transport_->handshake(
      [self = shared_from_this()](std::error_code error, std::size_t) { error ? self->close() : self->read(); });
}

void HttpConnection::close() {
  if (std::exchange(stage_, Stage::kClosed) == Stage::kClosed) return;
  const auto self = shared_from_this();
  wanted_ = false;
  transport_->close();
  timer_.cancel();
  source_.reset();
  if (!working_) drop_body();
  hub_.remove(*this);
}

void HttpConnection::finish() {
  close_after_ = true;
  if (stage_ == Stage::kReading) return close();
  if (stage_ != Stage::kClosed) wait_at_most(hub_.limits.finish);
}

// ---- Time

void HttpConnection::wait_at_most(std::chrono::milliseconds time) {
  deadline_ = std::min(std::chrono::steady_clock::now() + time, hub_.finish_by);
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error && std::chrono::steady_clock::now() >= self->deadline_) self->out_of_time();
  });
}

void HttpConnection::wait_on() {
  if (hub_.finishing) return;  // then nothing waits without end
  deadline_ = std::chrono::steady_clock::time_point::max();
  timer_.cancel();
}

void HttpConnection::out_of_time() {
  const bool late = stage_ == Stage::kReading && parser_->begun();
  late ? refuse({408, "the request did not come whole in time"}) : close();
}

// ---- Reading

void HttpConnection::read() {
  if (reading_ || client_done_ || stage_ == Stage::kClosed || ahead_.size() > kAheadMax) return;
  reading_ = true;
  transport_->read(buffer_, [self = shared_from_this()](std::error_code error, std::size_t bytes) {
    self->reading_ = false;
    self->received(error, bytes);
  });
}

void HttpConnection::received(std::error_code error, std::size_t bytes) {
  if (stage_ == Stage::kClosed) return;
  if (error) {
    client_done_ = true;
    if (stage_ != Stage::kAnswering || !ended_) close();  // an answer that has ended is still sent
    return;
  }
  if (stage_ != Stage::kLingering) ahead_.append(buffer_.data(), bytes);
  if (stage_ == Stage::kReading) parse();
  read();
}

void HttpConnection::next_request() {
  stage_ = Stage::kReading;
  parser_.emplace(hub_.limits);
  origin_.clear();
  head_looked_at_ = begun_ = ended_ = chunked_ = bodiless_ = false;
  waits_since_ = std::chrono::steady_clock::now();
  wait_at_most(hub_.limits.idle);
  parse();
  if (client_done_ && stage_ == Stage::kReading) return close();  // the rest of a request does not come
  read();
}

void HttpConnection::hold_body(std::size_t bytes) {
  const auto grown = static_cast<std::ptrdiff_t>(bytes) - static_cast<std::ptrdiff_t>(body_bytes_);
  body_bytes_ = bytes;
  if (grown != 0) hub_.hold_bodies(grown);
}

// It is answered, or its request refused.
void HttpConnection::drop_body() {
  if (body_bytes_ >= kTrimFrom) hub_.trim_soon();
  std::string().swap(parser_->request().body);
  hold_body(0);
}

void HttpConnection::parse() {
  while (stage_ == Stage::kReading) {
    const bool begun = parser_->begun();
    const std::size_t taken = parser_->feed(ahead_);
    ahead_.erase(0, taken);
    if (!begun && parser_->begun()) {
      waits_since_ = std::chrono::steady_clock::now();
      wait_at_most(hub_.limits.head);
    }
    switch (parser_->stage()) {
      case HttpParser::Stage::kHead:
        return;
      case HttpParser::Stage::kBody:
        if (!std::exchange(head_looked_at_, true)) {
          if (!look_at_head()) return;
        } else {
          hold_body(parser_->request().body.size());
          if (taken == 0) return;
        }
        break;
      case HttpParser::Stage::kWhole:
        hold_body(parser_->request().body.size());
        if (stage_ == Stage::kReading) work();
        return;
      case HttpParser::Stage::kFailed:
        return refuse(parser_->failure());
    }
  }
}

// Whether its body is wanted; otherwise it is answered.
bool HttpConnection::look_at_head() {
  HttpRequest& request = parser_->request();
  request.peer = address_;
  bodiless_ = request.method == "HEAD";
  close_after_ = hub_.finishing || !request.version_1_1 || lists(request.field("connection"), "close");
  if (hub_.refuses_foreign) {
    if (const auto foreign = refuse_foreign(request, hub_.allowed_hosts)) {
      refuse(*foreign);
      return false;
    }
    origin_ = request.field("origin");
    if (const auto response = answer_preflight(request)) {
      close_after_ |= parser_->has_body();
      respond(*response);
      return false;
    }
  }
  const std::string_view expected = request.field("expect");
  if (!expected.empty() && !same_ignoring_case(expected, "100-continue")) {
    refuse({417, "of expectations only `100-continue` is met"});
    return false;
  }
  if (const auto response = hub_.service->answer_head(request)) {
    close_after_ |= parser_->has_body();
    respond(*response);
    return false;
  }
  wait_at_most(hub_.limits.body);
  if (!expected.empty() && request.version_1_1 && ahead_.empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// ---- Answering

void HttpConnection::refuse(HttpFailure failure) {
  failure.peer = address_;
  close_after_ = true;
  drop_body();
  respond(hub_.service->refusal(failure));
}

void HttpConnection::work() {
  stage_ = Stage::kAnswering;
  working_ = true;
  writing_ ? wait_at_most(hub_.limits.write) : wait_on();
  HttpWake wake = [&loop = hub_.loop, weak = weak_from_this()] {
    if (auto self = weak.lock()) asio::post(loop, [self = std::move(self)] { self->pump(); });
  };
  hub_.workers.add([self = shared_from_this(), busy = asio::make_work_guard(hub_.loop), wake = std::move(wake),
                    request = std::move(parser_->request())]() mutable {
    HttpAnswer answer;
    if (self->wanted_) answer = answer_of(*self->hub_.service, request, std::move(wake));
    std::string().swap(request.body);
    asio::post(busy.get_executor(),
               [self = std::move(self), answer = std::move(answer)]() mutable { self->answered(std::move(answer)); });
  });
}

void HttpConnection::answered(HttpAnswer answer) {
  working_ = false;
  drop_body();
  if (stage_ == Stage::kClosed) return;
  if (const auto* response = std::get_if<HttpResponse>(&answer)) return respond(*response);
  source_ = std::move(std::get<std::unique_ptr<HttpSource>>(answer));
  if (hub_.finishing) wait_at_most(hub_.limits.write);
  pump();
}

// Sends what the source has, as long as the client takes it.
void HttpConnection::pump() {
  while (source_ && !writing_) {
    auto part = source_->next();
    if (!part) return;
    if (part->end) source_.reset();
    send_part(std::move(*part));
  }
}

void HttpConnection::send_part(HttpSource::Part part) {
  if (!std::exchange(begun_, true)) {
    if (part.end) return respond(part.response);
    chunked_ = parser_->request().version_1_1;
    close_after_ |= !chunked_;
    send(head_of(part.response, std::nullopt));
  }
  ended_ = part.end;
  std::string& body = part.response.body;
  if (chunked_) {
    if (!body.empty()) body = fmt::format("{:x}\r\n{}\r\n", body.size(), body);
    if (part.end) body += "0\r\n\r\n";
  }
  send(std::move(body));
}

// All of it, with whatever it was before.
void HttpConnection::respond(const HttpResponse& response) {
  stage_ = Stage::kAnswering;
  begun_ = ended_ = true;
  std::string bytes = head_of(response, response.body.size());
  if (!bodiless_) bytes += response.body;
  send(std::move(bytes));
}

std::string HttpConnection::head_of(const HttpResponse& response, std::optional<std::size_t> length) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", response.status,
                                 http_reason(response.status), fmt::gmtime(std::time(nullptr)));
  if (!response.type.empty()) head += fmt::format("Content-Type: {}\r\n", response.type);
  if (length) head += fmt::format("Content-Length: {}\r\n", *length);
  if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  if (close_after_) head += "Connection: close\r\n";
  if (!origin_.empty()) head += fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", origin_);
  for (const auto& [name, value] : response.fields) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

void HttpConnection::send(std::string bytes) {
  next_out_ += bytes;
  if (!writing_) return write();
  if (stage_ == Stage::kAnswering) wait_at_most(hub_.limits.write);  // also for what was begun before
}

void HttpConnection::write() {
  if (written_ == out_.size()) {
    written_ = 0;
    out_ = std::exchange(next_out_, {});
    if (out_.empty()) return sent();
  }
  writing_ = true;
  if (stage_ == Stage::kAnswering) wait_at_most(hub_.limits.write);
  transport_->write(std::string_view(out_).substr(written_, kWriteMax),
                    [self = shared_from_this()](std::error_code error, std::size_t bytes) {
                      self->writing_ = false;
                      if (self->stage_ == Stage::kClosed) return;
                      if (error) return self->close();
                      self->written_ += bytes;
                      self->write();
                    });
}

// All that there was.
void HttpConnection::sent() {
  if (stage_ != Stage::kAnswering) return;
  wait_on();
  if (!ended_) return pump();
  if (!close_after_) return next_request();
  // Closing with bytes unread would reset the connection before the client has read its answer.
  const auto stage = parser_->stage();
  const bool whole = stage == HttpParser::Stage::kWhole || (stage == HttpParser::Stage::kBody && !parser_->has_body());
  client_done_ || (whole && ahead_.empty()) ? close() : linger();
}

void HttpConnection::linger() {
  stage_ = Stage::kLingering;
  waits_since_ = std::chrono::steady_clock::now();
  ahead_.clear();
  transport_->end_writing();
  wait_at_most(hub_.limits.linger);
  read();
}

}  // namespace shale
