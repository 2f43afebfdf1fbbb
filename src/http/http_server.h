// A server of HTTP/1.1, over TCP, TLS or a Unix socket, that bounds what clients may make it hold and wait for.
//
//   HttpServer ── one thread ──> connections   heads, bodies and answers, as clients send and take them
//              ── workers    ──> HttpService   whole requests alone
//
// A client that sends slowly, or nothing, or takes nothing, holds a connection and never a thread; where connections
// run short, it is the first to lose its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/error.h"
#include "http/http_message.h"

namespace shale {

// An answer that is made while it is sent. The server's thread alone uses it, and destroys it when its last part has
// been taken or the client has gone.
class HttpSource {
 public:
  struct Part {
    HttpResponse response;  // of the first part all is sent, of later ones the body alone
    bool end = false;       // nothing comes after it
  };

  virtual ~HttpSource() = default;
  // What has come since the last call; must not wait. Nothing where nothing has: it is asked again after its `wake`.
  // Not asked while the client has not taken what came before.
  virtual std::optional<Part> next() = 0;
};

using HttpAnswer = std::variant<HttpResponse, std::unique_ptr<HttpSource>>;
// Tells the server that the source has more. Thread-safe; may be called when nobody wants it any more.
using HttpWake = std::function<void()>;

// What a server serves.
class HttpService {
 public:
  virtual ~HttpService() = default;
  // Answers what needs no body, and refuses before one is read; nothing where `answer` is to have the whole request.
  // Called by the server's thread, so it must not wait or work long.
  virtual std::optional<HttpResponse> answer_head(const HttpRequest& head) = 0;
  // Called by workers, several at once.
  virtual HttpAnswer answer(const HttpRequest& request, HttpWake wake) = 0;
  // The body of an answer that the server gives by itself.
  virtual HttpResponse refusal(const HttpFailure& failure) = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";               // an address, a name that has one, or unix:/PATH
  std::uint16_t port = 8000;                    // 0: any that is free
  std::string tls_certificate = {};             // PEM file with the certificate and those that sign it; empty: no TLS
  std::string tls_key = {};                     // PEM file; others in place of both are used from then on
  std::vector<std::string> allowed_hosts = {};  // a server on loopback may be called (http_access.h)
  std::uint32_t workers = 2;
  HttpLimits limits = {};
  // Called by the server's thread, which must not wait, with a line for people.
  std::function<void(const std::string&)> on_note = {};
};

class HttpServer {
 public:
  // Listens; clients wait until it serves. kIo where the address cannot be had, kInvalidArgument for unusable files.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options);
  ~HttpServer();  // stops

  std::uint16_t port() const;  // 0 of a Unix socket
  // Whether only this machine's own programs reach it.
  bool local() const;
  // Once. The service must outlive the server.
  void serve(HttpService& service);
  // Takes no more requests, finishes sending the answers that have ended or end within the time that a write may take,
  // and returns when every connection is closed.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
