// A Redis server of a test's own, on a port of 127.0.0.1.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/child_process.h"
#include "support/temporary_folder.h"

namespace shale::testing {

// A certificate that signs itself, for 127.0.0.1 and localhost: cert.pem and key.pem.
inline bool make_certificate(const std::filesystem::path& folder) {
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
      " -addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout " +
      (folder / "key.pem").string() + " -out " + (folder / "cert.pem").string() + " >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

struct RedisServerOptions {
  bool tls = false;
  bool cluster = false;                // a node of one
  std::vector<std::string> more = {};  // of its command line
};

class RedisServer {
 public:
  // kUnsupported where it is not installed.
  static Result<std::unique_ptr<RedisServer>> start(RedisServerOptions options = {}) {
    if (!is_installed("redis-server")) return fail(ErrorCode::kUnsupported, "redis-server is not installed");
    auto server = std::unique_ptr<RedisServer>(new RedisServer(std::move(options)));
    if (server->options_.tls && !make_certificate(server->folder_.path())) {
      return fail(ErrorCode::kUnsupported, "openssl made no certificate");
    }
    // Ports that were free may be others' by now.
    for (int attempt = 1; !server->restart(); ++attempt) {
      if (attempt == kAttempts) return fail(ErrorCode::kIo, "redis-server does not start");
      server->port_ = free_port();
      server->bus_port_ = free_port();
    }
    return server;
  }

  std::uint16_t port() const { return port_; }
  std::uint16_t bus_port() const { return bus_port_; }  // by default 10,000 above the other, which may be none
  std::string ca() const { return (folder_.path() / "cert.pem").string(); }
  void kill() { process_->kill(); }
  // Stops and goes on.
  void signal(int number) { process_->signal(number); }
  // Empty, on the same port.
  bool restart() {
    process_.emplace(command());
    return process_->serves(port_);
  }
  // What redis-cli prints, for what a test does behind the tier's back.
  std::string ask(const std::string& command) const {
    const std::string tls = options_.tls ? " --tls --cacert " + ca() : "";
    const std::string line = "redis-cli -p " + std::to_string(port_) + tls + " --no-auth-warning " + command;
    std::string out;
    FILE* pipe = popen(line.c_str(), "r");
    for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
    if (pipe) pclose(pipe);
    return out;
  }

 private:
  static constexpr int kAttempts = 3;

  explicit RedisServer(RedisServerOptions options) : options_(std::move(options)), port_(free_port()) {}
  std::vector<std::string> command() const {
    const std::string port = std::to_string(port_), folder = folder_.path().string();
    std::vector<std::string> line{"redis-server", "--bind", "127.0.0.1", "--save", "", "--dir", folder};
    const auto add = [&](std::initializer_list<std::string> more) { line.insert(line.end(), more); };
    if (options_.tls) {
      add({"--port", "0", "--tls-port", port, "--tls-cert-file", folder + "/cert.pem", "--tls-key-file",
           folder + "/key.pem", "--tls-auth-clients", "no"});
    } else {
      add({"--port", port});
    }
    if (options_.cluster) add({"--cluster-enabled", "yes", "--cluster-port", std::to_string(bus_port_)});
    line.insert(line.end(), options_.more.begin(), options_.more.end());
    return line;
  }

  const RedisServerOptions options_;
  std::uint16_t port_, bus_port_ = free_port();
  const TemporaryFolder folder_;
  std::optional<ChildProcess> process_;
};

}  // namespace shale::testing
