// A server that several share who know nothing of each other.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <mutex>
#include <thread>
#include <vector>

#include "server/server_fixture.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::BusyServerTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ServerTest;

// What one asked is neither counted for another nor of use to it, in the pool or in a tier.
TEST_F(ServerTest, TenantsKnowNothingOfEachOther) {
  start({.api = {.api_key = "operator", .tenants = two_tenants()}});
  const auto cached = [&](const char* key, const Json& more = Json::object()) {
    const auto result = client().Post("/v1/chat/completions", {{"Authorization", std::string("Bearer ") + key}},
                                      chat("What is shale?", more).dump(), "application/json");
    EXPECT_EQ(result->status, 200) << result->body;
    return Json::parse(result->body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(client().Get("/v1/models")->status, 401);
  EXPECT_EQ(cached("secret"), 0);
  const int own = cached("secret");
  EXPECT_GT(own, 0);
  EXPECT_EQ(cached("other"), 0);
  EXPECT_EQ(cached("other"), own);
  EXPECT_EQ(cached("secret", {{"cache_salt", "room"}}), 0) << "a room of its own within a tenant";
  EXPECT_EQ(cached("secret", {{"cache_salt", "room"}}), own);
  EXPECT_EQ(cached("other", {{"cache_salt", "room"}}), 0);
  EXPECT_EQ(client().Get("/metrics", {{"Authorization", "Bearer other"}})->status, 403) << "it tells of all";
  const auto metrics = client().Get("/metrics", {{"Authorization", "Bearer operator"}});
  EXPECT_THAT(metrics->body, HasSubstr("shale_tenant_requests_total{model_name=\"tiny\",tenant=\"ann\"} 4\n"));
  EXPECT_THAT(metrics->body, HasSubstr("shale_tenant_requests_running{model_name=\"tiny\",tenant=\"ann\"} 0\n"));
}

TEST_F(ServerTest, MetricsTellOfEachTenant) {
  start({.api = {.api_key = "operator", .tenants = two_tenants("requests=3", "")}});
  ask("secret", chat("What is shale?"));
  ask("secret", chat("What is shale?"));
  const auto rendered = client().Post("/v1/chat/completions/render", {{"Authorization", "Bearer secret"}},
                                      chat("What is shale?").dump(), "application/json");
  EXPECT_EQ(rendered->status, 200);
  const auto sample = [&](const std::string& name, const std::string& labels) {
    const auto metrics = client().Get("/metrics", {{"Authorization", "Bearer operator"}})->body;
    const std::string head = name + "{model_name=\"tiny\",tenant=\"" + labels + "} ";
    const std::size_t at = metrics.find(head);
    EXPECT_NE(at, std::string::npos) << head;
    return at == std::string::npos ? -1 : std::stod(metrics.substr(at + head.size()));
  };
  const double prompts = sample("shale_tenant_prompt_tokens_total", "ann\"");
  EXPECT_GT(prompts, 0);
  EXPECT_EQ(sample("shale_tenant_requests_total", "ann\""), 2) << "a render asks for no answer";
  EXPECT_EQ(sample("shale_tenant_generation_tokens_total", "ann\""), 24);
  EXPECT_EQ(sample("shale_tenant_cached_tokens_total", "ann\",source=\"pool\""), prompts / 2 - 1);
  EXPECT_EQ(sample("shale_tenant_queue_seconds_count", "ann\""), 2);
  for (int i = 0; i < 1000 && sample("shale_tenant_stored_bytes", "ann\"") == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_GT(sample("shale_tenant_stored_bytes", "ann\""), 0);
  for (const char* name :
       {"shale_tenant_requests_total", "shale_tenant_prompt_tokens_total", "shale_tenant_queue_seconds_count",
        "shale_tenant_stored_bytes", "shale_tenant_dropped_extents_total", "shale_tenant_not_stored_total"}) {
    EXPECT_EQ(sample(name, "bob\""), 0) << name;
  }
}

// One computes what the operator published; everybody else finds it, and nothing more.
TEST_F(ServerTest, APublicPrefixIsFoundByAllTenants) {
  const std::string rules = chat("")["messages"][0]["content"];
  start({.api = {.tenants = two_tenants(), .public_prefixes = {rules}}});
  const auto cached = [&](const char* key, const Json& body) {
    return ask(key, body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  const int published = cached("secret", chat("What is shale?"));
  EXPECT_GT(published, 32);
  EXPECT_EQ(published % 16, 0);
  EXPECT_EQ(cached("other", chat("What is shale?")), published) << "not what the first one asked";
  EXPECT_GT(cached("secret", chat("What is shale?")), published);
  Json others = chat("What is shale?");
  others["messages"][0]["content"] = "Something else, which nobody published, whatever it may say.";
  EXPECT_LT(cached("secret", others), 16 + 16) << "but for the template's beginning";
}

// Four are decoded together and none may wait: as many places each has for itself, or as its line says.
TEST_F(BusyServerTest, ATenantsFullQueueIsItsOwn) {
  const auto status = [&](const std::string& key, const Json& body, const char* path = "/v1/chat/completions") {
    const auto result = client().Post(path, {{"Authorization", "Bearer " + key}}, body.dump(), "application/json");
    return result ? result->status : 0;
  };
  const auto comes_in_flight = [&](const std::string& tenant, int requests) {
    const std::string line =
        fmt::format("shale_tenant_requests_running{{model_name=\"tiny\",tenant=\"{}\"}} {}\n", tenant, requests);
    for (int i = 0; i < 1000; ++i) {
      if (client().Get("/metrics", {{"Authorization", "Bearer operator"}})->body.contains(line)) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  };
  for (const auto& [of_ann, places] : {std::pair("", 4), std::pair("requests=0", 4), std::pair("requests=10", 10)}) {
    start({.loop = {.queue_max = 0}, .api = {.api_key = "operator", .tenants = two_tenants(of_ann)}});
    std::vector<std::jthread> asking;
    for (int i = 0; i < places; ++i) asking.emplace_back([&] { status("secret", endless()); });
    ASSERT_TRUE(comes_in_flight("ann", places)) << of_ann;
    EXPECT_EQ(status("secret", chat("x")), 429) << of_ann;
    EXPECT_EQ(status("secret", chat("x"), "/v1/chat/completions/render"), 200) << "that takes no place";
    for (int i = 0; i < 4; ++i) asking.emplace_back([&] { status("other", endless()); });
    EXPECT_TRUE(comes_in_flight("bob", 4)) << "they wait for one of ann's to end";
    server_->stop(0ms);
  }
}

// Whatever refuses it, and only once.
TEST_F(ServerTest, LogsEveryRefusalOnce) {
  std::mutex mutex;
  std::vector<Json> lines;
  const auto log = std::make_shared<RequestLog>(RequestLog::Form::kJson, LogLevel::kInfo, [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.push_back(Json::parse(line));
  });
  start({.api = {.tenants = two_tenants(), .log = log}});
  const httplib::Headers ann = {{"Authorization", "Bearer secret"}};
  EXPECT_EQ(client().Get("/nowhere", ann)->status, 404);
  EXPECT_EQ(client().Get("/v1/models/other", ann)->status, 404);
  EXPECT_EQ(client().Get("/v1/completions", ann)->get_header_value("Allow"), "POST");
  EXPECT_EQ(client().Post("/v1/models", ann, "{}", "application/json")->status, 405);
  EXPECT_EQ(client().Post("/v1/completions", ann, "x", "text/plain")->status, 415);
  EXPECT_EQ(client().Get("/metrics", ann)->status, 403);
  EXPECT_EQ(client().Get("/v1/models")->status, 401);
  EXPECT_EQ(client().Get("/health", {{"Host", "elsewhere.example"}})->status, 403);
  EXPECT_EQ(client().Get("/health", {{"Expect", "much"}})->status, 417);
  EXPECT_EQ(client().Get("/v1/models", ann)->status, 200) << "no refusal, no line";
  server_.reset();
  std::vector<int> statuses;
  for (const Json& line : lines) {
    statuses.push_back(line["status"]);
    EXPECT_EQ(line["outcome"], "refused");
    EXPECT_FALSE(line["why"].get<std::string>().empty());
    EXPECT_EQ(line["peer"], "127.0.0.1");
  }
  EXPECT_THAT(statuses, ElementsAre(404, 404, 405, 405, 415, 403, 401, 403, 417));
  EXPECT_EQ(lines[0]["tenant"], "ann");
  EXPECT_TRUE(lines[6]["tenant"].is_null());
}

TEST_F(ServerTest, TenantsMayShareACache) {
  start({.api = {.tenants = two_tenants(), .shared_cache = true}});
  const auto cached = [&](const char* key) {
    const auto result = client().Post("/v1/chat/completions", {{"Authorization", std::string("Bearer ") + key}},
                                      chat("What is shale?").dump(), "application/json");
    return Json::parse(result->body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("secret"), 0);
  EXPECT_GT(cached("other"), 0);
}

TEST_F(ServerTest, ASaltIsForThoseWhoHaveIt) {
  start();
  const auto cached = [&](const Json& more) {
    return posted("/v1/chat/completions",
                  chat("What is shale?", more))["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  EXPECT_EQ(cached({{"cache_salt", "a"}}), 0);
  EXPECT_GT(cached({{"cache_salt", "a"}}), 0);
  EXPECT_EQ(cached({{"cache_salt", "b"}}), 0);
  EXPECT_EQ(cached(Json::object()), 0);
  EXPECT_EQ(post("/v1/chat/completions", chat("x", {{"cache_salt", ""}}))->status, 400);
  EXPECT_EQ(post("/v1/chat/completions", chat("x", {{"cache_salt", std::string(1025, 's')}}))->status, 400);
}

}  // namespace
}  // namespace shale
