// The server alone, as clients see it that send any bytes at any speed.
#include "http/http_server.h"

#include <gmock/gmock.h>
#include <httplib.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "http/raw_client.h"
#include "http/self_signed.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::RawClient;
using ::testing::StartsWith;
using testing::TemporaryFolder;

// Sends `parts` parts of `bytes` each, as fast as they are taken; or nothing, ever.
class Numbers final : public HttpSource {
 public:
  Numbers(std::size_t parts, std::size_t bytes, std::atomic<int>& alive) : left_(parts), bytes_(bytes), alive_(alive) {
    ++alive_;
  }
  ~Numbers() override { --alive_; }
  std::optional<Part> next() override {
    if (left_ == 0) return std::nullopt;
    --left_;
    Part part{.response = {.type = "text/plain", .body = std::string(bytes_, static_cast<char>('0' + left_ % 10))}};
    part.end = left_ == 0;
    return part;
  }

 private:
  std::size_t left_;
  const std::size_t bytes_;
  std::atomic<int>& alive_;
};

// GET answers from the head; POST /length says how long the body was; /numbers/PARTS streams; /never never answers.
class TestService final : public HttpService {
 public:
  std::optional<HttpResponse> answer_head(const HttpRequest& head) override {
    if (head.method == "POST") return std::nullopt;
    if (head.path == "/health") return HttpResponse{.type = "text/plain", .body = "well"};
    return refusal({404, "there is nothing"});
  }
  HttpAnswer answer(const HttpRequest& request, HttpWake wake) override {
    if (request.path == "/throw") throw std::bad_alloc();
    if (request.path == "/never") return std::make_unique<Numbers>(0, 0, alive);
    if (request.path == "/numbers/3") return std::make_unique<Numbers>(3, 5, alive);
    if (request.path == "/numbers/many") return std::make_unique<Numbers>(1000, 100'000, alive);
    wake();  // of no use, and no harm
    return HttpResponse{.type = "text/plain", .body = std::to_string(request.body.size())};
  }
  HttpResponse refusal(const HttpFailure& failure) override {
    return {.status = failure.status, .type = "text/plain", .body = failure.message};
  }

  std::atomic<int> alive = 0;  // sources
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    if (!options.host.starts_with("unix:")) options.port = 0;
    auto server = HttpServer::listen(options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    server_->serve(service_);
  }
  RawClient client() { return RawClient(server_->port()); }
  // All that comes back, until the server closes.
  std::string ask(std::string_view bytes) {
    RawClient one = client();
    one.send(bytes);
    return one.receive_all();
  }
  static std::string get(std::string_view path, std::string_view fields = "Connection: close\r\n") {
    return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
  }
  static std::string post(std::string_view path, std::string_view body, std::string_view fields = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(),
                       fields, body);
  }
  bool healthy() { return ask(get("/health")).ends_with("\r\n\r\nwell"); }
  bool comes_to(const std::atomic<int>& value, int wanted) {
    for (int i = 0; i < 2000 && value != wanted; ++i) std::this_thread::sleep_for(5ms);
    return value == wanted;
  }

  TestService service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  RawClient one = client();
  for (int i = 0; i < 3; ++i) {
    one.send(get("/health", ""));
    EXPECT_THAT(one.receive_until("well"),
                MatchesRegex("HTTP/1.1 200 OK\r\nDate: [A-Z][a-z]+, .* GMT\r\nContent-Type: text/plain\r\n"
                             "Content-Length: 4\r\n\r\nwell"));
    one.send(post("/length", std::string(100'000, 'x')));
    EXPECT_THAT(one.receive_until("100000"), HasSubstr("Content-Length: 6\r\n\r\n100000"));
  }
  one.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(one.receive(), ::testing::EndsWith("Content-Length: 4\r\n\r\n"));
  one.send(get("/"));
  EXPECT_THAT(one.receive_all(), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(ask("GET /health HTTP/1.0\r\n\r\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(ask(post("/throw", "", "Connection: close\r\n")), StartsWith("HTTP/1.1 500 "));
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  const std::string all = ask(post("/length", "one") + post("/numbers/3", "") + get("/health", "") +
                              post("/length", "three", "Connection: close\r\n"));
  EXPECT_THAT(all, MatchesRegex("HTTP/1.1 200 OK\r\n.*\r\n\r\n3HTTP/1.1 200 OK\r\n.*Transfer-Encoding: chunked\r\n\r\n"
                                "5\r\n22222\r\n5\r\n11111\r\n5\r\n00000\r\n0\r\n\r\n"
                                "HTTP/1.1 200 OK\r\n.*\r\n\r\nwellHTTP/1.1 200 OK\r\n.*\r\n\r\n5"));
}

TEST_F(HttpServerTest, AnswersAClientThatHasSaidAll) {
  start();
  RawClient one = client();
  one.send(get("/health", "") + get("/health", "") + "GET /he");
  one.end_sending();
  const std::string all = one.receive_all();
  EXPECT_THAT(all, MatchesRegex("HTTP/1.1 200 OK\r\n.*wellHTTP/1.1 200 OK\r\n.*well"));
}

TEST_F(HttpServerTest, StreamsToOldClientsUntilItCloses) {
  start();
  EXPECT_THAT(ask("POST /numbers/3 HTTP/1.0\r\n\r\n"), ::testing::EndsWith("\r\n\r\n222221111100000"));
}

TEST_F(HttpServerTest, InvitesTheBodyThatIsWaitedFor) {
  start();
  RawClient one = client();
  one.send("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(one.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  one.send("ok");
  EXPECT_THAT(one.receive_until("\r\n\r\n2"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\n\r\n"), StartsWith("HTTP/1.1 417 "));
}

TEST_F(HttpServerTest, RefusesABodyThatIsTooLongBeforeItIsSent) {
  start({.limits = {.body_bytes = 1000}});
  EXPECT_THAT(ask("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"),
              StartsWith("HTTP/1.1 413 Content Too Large\r\n"));
  EXPECT_THAT(ask("POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"),
              StartsWith("HTTP/1.1 413 "));
  // A client that goes on sending still reads why.
  RawClient one = client();
  one.send("POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "200\r\n" + std::string(512, 'x') + "\r\n";
  for (int i = 0; i < 1000; ++i) one.send(chunk);
  EXPECT_THAT(one.receive_until("bytes"), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, AChunkedBodyTakesNoMoreMemoryThanItMay) {
  start();
  const std::size_t before = testing::peak_bytes();
  RawClient one = client();
  one.send("POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  for (int i = 0; i < 256 && one.send(chunk); ++i) {
  }
  EXPECT_THAT(one.receive_until("bytes"), StartsWith("HTTP/1.1 413 "));
  EXPECT_LT(testing::peak_bytes(), before + (std::size_t{200} << 20)) << "of 256 MiB that were sent, 16 may be held";
}

TEST_F(HttpServerTest, RefusesWhatBreaksTheRulesAndCloses) {
  start();
  EXPECT_THAT(ask("GET / HTTP/1.1\nHost: localhost\n\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(ask("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              MatchesRegex("HTTP/1.1 400 Bad Request\r\n.*Connection: close\r\n\r\n.*not both"));
  EXPECT_THAT(ask(get("/" + std::string(20'000, 'x'))), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, AnswersNoForeignPages) {
  start();
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(ask(get("/health", "Origin: https://evil.example\r\n")), StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(ask(get("/health", "Origin: http://localhost:3000\r\nConnection: close\r\n")), HasSubstr(" 200 OK"));
  server_.reset();
  start({.allowed_hosts = {"Shale.example"}});
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: shale.example\r\nConnection: close\r\n\r\n"), HasSubstr(" 200 OK"));
}

TEST_F(HttpServerTest, ADribbledRequestTimesOut) {
  start({.limits = {.head = 200ms, .body = 200ms, .idle = 200ms}});
  for (const std::string& bytes : {std::string("GET / HT"), std::string("GET / HTTP/1.1\r\nHost: localhost\r\n"),
                                   post("/length", std::string(100, 'x')).substr(0, 80)}) {
    RawClient one = client();
    one.send(bytes);
    std::jthread dribble([&](std::stop_token stop) {
      while (!stop.stop_requested() && one.send("x")) std::this_thread::sleep_for(90ms);
    });
    EXPECT_THAT(one.receive_until("time"), StartsWith("HTTP/1.1 408 Request Timeout\r\n")) << bytes;
  }
  EXPECT_EQ(client().receive_all(), "") << "an idle connection is closed without a word";
}

// They would for as long as the test may take.
TEST_F(HttpServerTest, IdleAndDribblingConnectionsHoldNobodyUp) {
  start({.limits = {.head = 1h, .body = 1h, .idle = 1h}});
  std::vector<RawClient> others;
  for (int i = 0; i < 500; ++i) {
    others.push_back(client());
    ASSERT_TRUE(others.back().open());
    if (i % 3 == 1) others.back().send("POST /length HTTP/1.1\r\nHost: loc");
    if (i % 3 == 2) others.back().send("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx");
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(healthy());
  EXPECT_THAT(ask(post("/length", "x", "Connection: close\r\n")), HasSubstr(" 200 OK"));
}

TEST_F(HttpServerTest, WhoKeepsItWaitingLongestIsClosedForOthers) {
  start({.limits = {.connections = 4, .connections_per_address = 3}});
  RawClient oldest = client();
  oldest.send("GET /he");
  RawClient second = client();
  second.send("GET /he");
  RawClient busy = client();
  busy.send(post("/never", ""));
  ASSERT_TRUE(comes_to(service_.alive, 1));
  EXPECT_TRUE(healthy());
  EXPECT_EQ(oldest.receive_all(), "") << "closed";
  second.send("alth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(second.receive_all(), ::testing::EndsWith("well"));
  EXPECT_EQ(service_.alive, 1);
  // Where all are being answered, a new one finds no room.
  RawClient more = client(), most = client();
  more.send(post("/never", ""));
  most.send(post("/never", ""));
  ASSERT_TRUE(comes_to(service_.alive, 3));
  EXPECT_EQ(ask(get("/health")), "");
}

TEST_F(HttpServerTest, WhoWasRefusedAndStaysIsClosedForOthers) {
  start({.limits = {.connections = 2, .connections_per_address = 2, .linger = 60s}});
  RawClient first = client(), second = client();
  for (RawClient* one : {&first, &second}) {
    one->send("x\n");
    EXPECT_THAT(one->receive(), StartsWith("HTTP/1.1 400 "));
  }
  EXPECT_TRUE(healthy());
}

TEST_F(HttpServerTest, LongBodiesTogetherAreBounded) {
  start({.limits = {.body_bytes = 1 << 20, .bodies_bytes = 3 << 20}});
  RawClient first = client(), second = client(), third = client(), fourth = client();
  for (RawClient* one : {&first, &second, &third, &fourth}) {
    one->send("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(one->receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  }
  const std::string most(1'000'000, 'x');
  for (RawClient* one : {&first, &second, &third, &fourth}) one->send(most);
  EXPECT_THAT(first.receive_until("again"), StartsWith("HTTP/1.1 503 "));
  fourth.send(std::string((1 << 20) - most.size(), 'x'));
  EXPECT_THAT(fourth.receive(), HasSubstr(" 200 OK"));
}

TEST_F(HttpServerTest, AClientThatLeavesOrDoesNotReadEndsItsAnswer) {
  start({.limits = {.write = 300ms}});
  {
    RawClient leaving = client();
    leaving.send(post("/never", ""));
    ASSERT_TRUE(comes_to(service_.alive, 1));
  }
  EXPECT_TRUE(comes_to(service_.alive, 0));
  RawClient deaf = client();
  deaf.send(post("/numbers/many", ""));
  ASSERT_TRUE(comes_to(service_.alive, 1));
  EXPECT_TRUE(comes_to(service_.alive, 0)) << "100 MB that nobody reads";
  server_.reset();
  start();
  RawClient reader = client();
  reader.send(post("/numbers/many", "", "Connection: close\r\n"));
  EXPECT_GT(reader.receive_all().size(), 100'000'000u);
}

TEST_F(HttpServerTest, SpeaksTls) {
  const TemporaryFolder folder;
  const std::string certificate = folder.path() / "cert.pem", key = folder.path() / "key.pem";
  testing::write_self_signed(certificate, key);
  start({.tls_certificate = certificate, .tls_key = key, .limits = {.head = 500ms}});
  httplib::SSLClient client("localhost", server_->port());
  client.set_ca_cert_path(certificate.c_str());
  client.set_keep_alive(true);
  for (int i = 0; i < 2; ++i) {
    const auto result = client.Post("/length", std::string(1 << 20, 'x'), "text/plain");
    ASSERT_TRUE(result) << httplib::to_string(result.error());
    EXPECT_EQ(result->body, "1048576");
  }
  EXPECT_EQ(client.Post("/numbers/3", "", "text/plain")->body, "222221111100000");
  EXPECT_FALSE(httplib::SSLClient("127.0.0.2", server_->port()).Get("/health")) << "signed by nobody that it trusts";
  RawClient plain = this->client();
  plain.send(get("/health"));
  EXPECT_THAT(plain.receive_all(), ::testing::Not(HasSubstr("well")));
  EXPECT_EQ(this->client().receive_all(), "") << "a handshake that does not come";
  EXPECT_EQ(HttpServer::listen({.port = 0, .tls_certificate = certificate, .tls_key = certificate}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(HttpServerTest, ListensOnAUnixSocket) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "s";
  for (int round = 0; round < 2; ++round) {  // the second finds the file that a killed process left
    start({.host = "unix:" + path});
    EXPECT_TRUE(server_->local());
    EXPECT_EQ(server_->port(), 0);
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    RawClient one(path);
    one.send("GET /health HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(one.receive_all(), ::testing::EndsWith("well"));
    const auto second = HttpServer::listen({.host = "unix:" + path});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("cannot listen"));
    if (round == 0) std::filesystem::rename(path, path + "x");
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
    if (round == 0) std::filesystem::rename(path + "x", path);
  }
  EXPECT_FALSE(HttpServer::listen({.host = "unix:"}));
  EXPECT_FALSE(HttpServer::listen({.host = "unix:" + std::string(200, 'x')}));
}

TEST_F(HttpServerTest, SaysWhatIsWrongWithItsAddressOrCertificate) {
  start();
  EXPECT_THAT(HttpServer::listen({.port = server_->port()}).error().message, HasSubstr("cannot listen on 127.0.0.1"));
  EXPECT_THAT(HttpServer::listen({.host = "no such name."}).error().message, HasSubstr("cannot listen on no such"));
  EXPECT_EQ(HttpServer::listen({.port = 0, .tls_key = "x"}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(HttpServer::listen({.port = 0, .tls_certificate = "/none", .tls_key = "/none"}).error().message,
              HasSubstr("TLS certificate /none"));
}

TEST_F(HttpServerTest, StopsWhateverItsClientsDo) {
  start({.limits = {.write = 1h, .linger = 1h, .finish = 200ms}});
  RawClient idle = client(), dribbling = client(), busy = client(), deaf = client();
  dribbling.send("GET");
  busy.send(post("/never", ""));
  deaf.send(post("/numbers/many", ""));
  ASSERT_TRUE(comes_to(service_.alive, 2));
  server_->stop();
  EXPECT_EQ(service_.alive, 0);
  EXPECT_EQ(idle.receive_all(), "");
  EXPECT_FALSE(RawClient(server_->port()).open());
}

}  // namespace
}  // namespace shale
