// `shale serve` as a user runs it, and a client of it.
#pragma once

#include <chrono>
#include <thread>

#include "cli/shale_program.h"
#include "loadtest/loopback_http.h"

namespace shale::testing {

class ServeProgram : public TinyProgram {
 protected:
  // A machine may be slow, and its tiers are as slow as it is.
  ServeProgram() { environment_["SHALE_FLUSH_TIMEOUT"] = "60"; }

  // Starts it on a free port; its first line.
  nlohmann::json serve(Words more = {}) {
    Words words = {"serve", "--port", "0", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    server_ = start(words);
    for (int i = 0; i < 1000; ++i) {
      const std::string out = read(home_.path() / "stdout");
      if (out.ends_with('\n')) return nlohmann::json::parse(out);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }
  Outcome end(int signal) {
    kill(server_, signal);
    return finish(server_);
  }

  static std::uint16_t port_of(const nlohmann::json& line) {
    const std::string url = line.at("url");
    return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  nlohmann::json chat(std::uint16_t port) { return chat(port, read(context_)); }
  nlohmann::json chat(std::uint16_t port, const std::string& question) {
    const nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", question}}}}, {"temperature", 0}};
    const auto answer = loopback_request(port, "POST", "/v1/chat/completions", body.dump());
    EXPECT_TRUE(answer) << answer.error().message;
    return nlohmann::json::parse(answer.value_or("null"));
  }

  // Of /metrics; 0 where there is no such sample.
  static double metric(std::uint16_t port, const std::string& sample) {
    const std::string page = loopback_request(port, "GET", "/metrics", "").value_or("");
    const std::size_t at = page.find(sample + " ");
    return at == std::string::npos ? 0 : std::stod(page.substr(at + sample.size() + 1));
  }

  pid_t server_ = 0;
};

}  // namespace shale::testing
