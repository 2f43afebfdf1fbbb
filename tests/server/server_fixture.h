// A server over the engine's fixture, and a client of it.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <sstream>
#include <thread>

#include "engine/engine_fixture.h"
#include "server/api_error.h"
#include "server/server.h"

namespace shale::testing {

class ServerTest : public EngineTest {
 protected:
  explicit ServerTest(const TinyModel& tiny = {}) : EngineTest(tiny) {}

  void start(ServerOptions options = {}) {
    options.http.port = 0;
    options.api.model_name = "tiny";
    server_ = Server::start(options, *engine_, clock_).value();
  }

  httplib::Client client() {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(60);
    return client;
  }

  httplib::Result post(const std::string& path, const Json& body) {
    return client().Post(path, body.dump(), "application/json");
  }
  Json posted(const std::string& path, const Json& body) {
    const auto result = post(path, body);
    EXPECT_TRUE(result);
    EXPECT_EQ(result->status, 200) << result->body;
    return Json::parse(result->body);
  }

  // The objects of a stream's events; its end must have come.
  std::vector<Json> streamed(const std::string& path, Json body) {
    body["stream"] = true;
    const auto result = post(path, body);
    EXPECT_TRUE(result);
    EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream; charset=utf-8");
    std::vector<Json> events;
    std::istringstream lines(result->body);
    std::string line, last;
    while (std::getline(lines, line)) {
      if (line.starts_with("data: {")) events.push_back(Json::parse(line.substr(6)));
      if (!line.empty()) last = line;
    }
    EXPECT_EQ(last, "data: [DONE]");
    return events;
  }

  // ann with the key "secret", bob with "other", and what else stands on their lines.
  static std::vector<Tenant> two_tenants(const std::string& of_ann = {}, const std::string& of_bob = {}) {
    return parse_tenants("ann 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b " + of_ann +
                         "\nbob d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa " + of_bob)
        .value();
  }
  Json ask(const std::string& key, const Json& body) {
    const auto result =
        client().Post("/v1/chat/completions", {{"Authorization", "Bearer " + key}}, body.dump(), "application/json");
    EXPECT_TRUE(result);
    EXPECT_EQ(result->status, 200) << result->body;
    return Json::parse(result->body);
  }

  double metric(const std::string& sample) {
    const auto result = client().Get("/metrics");
    EXPECT_TRUE(result);
    const std::size_t at = result->body.find(sample + " ");
    EXPECT_NE(at, std::string::npos) << sample;
    return at == std::string::npos ? -1 : std::stod(result->body.substr(at + sample.size() + 1));
  }
  bool comes_to(const std::string& sample, double value) {
    for (int i = 0; i < 1000; ++i) {
      if (metric(sample) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  static Json chat(const std::string& question, Json more = Json::object()) {
    Json body = {{"model", "tiny"}, {"temperature", 0}, {"max_tokens", 12}};
    body["messages"] = {{{"role", "system"}, {"content", "You know all about sedimentary rocks, and say so."}},
                        {{"role", "user"}, {"content", question}}};
    body.update(more);
    return body;
  }
  static Json endless() { return chat("Go on.", {{"max_tokens", 700}}); }

  std::unique_ptr<Server> server_;
};

// Whose answers take so long that something happens meanwhile.
class BusyServerTest : public ServerTest {
 protected:
  BusyServerTest() : ServerTest(slow_model()) {}
};

}  // namespace shale::testing
