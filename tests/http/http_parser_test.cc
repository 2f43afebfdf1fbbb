#include "http/http_parser.h"

#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Read {
  HttpParser::Stage stage;
  HttpRequest request;
  HttpFailure failure;
  std::size_t taken;
};

// `bytes` in pieces of `piece`.
Read read(std::string_view bytes, const HttpLimits& limits = {}, std::size_t piece = 1 << 20) {
  HttpParser parser(limits);
  std::size_t taken = 0, given = std::min(piece, bytes.size());
  for (;;) {
    const auto stage = parser.stage();
    taken += parser.feed(bytes.substr(taken, given - taken));
    if (parser.stage() == HttpParser::Stage::kWhole || parser.stage() == HttpParser::Stage::kFailed) break;
    if (parser.stage() != stage || taken < given) continue;
    if (given == bytes.size()) break;
    given = std::min(given + piece, bytes.size());
  }
  return {parser.stage(), parser.request(), parser.failure(), taken};
}

int status_of(std::string_view bytes, const HttpLimits& limits = {}) {
  const Read whole = read(bytes, limits), bytewise = read(bytes, limits, 1);
  EXPECT_EQ(whole.stage, bytewise.stage) << bytes;
  EXPECT_EQ(whole.failure.status, bytewise.failure.status) << bytes;
  if (whole.stage == HttpParser::Stage::kWhole) return 200;
  if (whole.stage != HttpParser::Stage::kFailed) return 0;
  EXPECT_FALSE(whole.failure.message.empty());
  return whole.failure.status;
}

std::string get(std::string_view fields) { return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n"; }
std::string post(std::string_view fields, std::string_view body) {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

TEST(HttpParser, ReadsAHeadAndABodyHoweverTheyAreCut) {
  const std::string bytes =
      "\r\nPOST /v1/models/a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\nX-Empty:\r\ncontent-LENGTH: 5 \r\n\r\nhello";
  for (const std::size_t piece : {1, 2, 7, 1000}) {
    const Read result = read(bytes + "GET", {}, piece);
    ASSERT_EQ(result.stage, HttpParser::Stage::kWhole) << result.failure.message;
    EXPECT_EQ(result.taken, bytes.size()) << "the next request is not touched";
    EXPECT_EQ(result.request.method, "POST");
    EXPECT_EQ(result.request.path, "/v1/models/a b");
    EXPECT_THAT(result.request.fields,
                ElementsAre(Pair("host", "localhost"), Pair("x-empty", ""), Pair("content-length", "5")));
    EXPECT_EQ(result.request.field("host"), "localhost");
    EXPECT_EQ(result.request.field("absent"), "");
    EXPECT_EQ(result.request.body, "hello");
  }
}

TEST(HttpParser, ReadsChunkedBodies) {
  const std::string bytes =
      post("Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n00A;ext=\"1\"\r\n, 12345678\r\n0\r\nX-Trailer: 1\r\n\r\n");
  for (const std::size_t piece : {1, 3, 1000}) {
    const Read result = read(bytes + "x", {}, piece);
    ASSERT_EQ(result.stage, HttpParser::Stage::kWhole) << result.failure.message;
    EXPECT_EQ(result.request.body, "hello, 12345678");
    EXPECT_EQ(result.taken, bytes.size());
    EXPECT_EQ(result.request.field("x-trailer"), "");
  }
}

TEST(HttpParser, StopsAfterTheHead) {
  const HttpLimits limits;
  HttpParser parser(limits);
  EXPECT_FALSE(parser.begun());
  const std::string bytes = post("Content-Length: 2\r\n", "ok");
  EXPECT_EQ(parser.feed(bytes), bytes.size() - 2);
  EXPECT_EQ(parser.stage(), HttpParser::Stage::kBody);
  EXPECT_TRUE(parser.begun() && parser.has_body());
  EXPECT_EQ(parser.feed("o"), 1u);
  EXPECT_EQ(parser.feed("kGET"), 1u);
  EXPECT_EQ(parser.stage(), HttpParser::Stage::kWhole);
  EXPECT_EQ(parser.feed("GET"), 0u);
}

TEST(HttpParser, TakesBothVersionsAndFormsOfTarget) {
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 200);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n").request.version_1_1);
  const Read absolute = read("GET http://else:80/x?y HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(absolute.request.path, "/x");
  EXPECT_EQ(absolute.request.field("host"), "else:80") << "the target counts";
  EXPECT_EQ(read("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").request.path, "*");
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
}

// Where one reader could see another request than the next.
TEST(HttpParser, RefusesWhatCanBeReadInTwoWays) {
  for (const std::string& bytes :
       std::vector<std::string>{post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
                                post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
                                post("Content-Length: 5, 5\r\n", "hello"),
                                post("Content-Length: +5\r\n", "hello"),
                                post("Content-Length: -5\r\n", "hello"),
                                post("Content-Length: 0x5\r\n", "hello"),
                                post("Content-Length: 5 5\r\n", "hello"),
                                post("Content-Length:\r\n", ""),
                                post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
                                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                                post("Content-Length : 5\r\n", "hello"),
                                post(" Content-Length: 5\r\n", "hello"),
                                post("X: 1\r\n 2\r\n", ""),  // a folded line
                                post("X: 1\r\n\t2\r\n", ""),
                                post("X: a\nY: b\r\n", ""),  // LF alone
                                post("X: a\rY: b\r\n", ""),  // CR alone
                                post(std::string_view("X: a\0b\r\n", 8), ""),
                                post("X: a\x01\r\n", ""),
                                post("X\r\n", ""),
                                post(": x\r\n", ""),
                                post("X y: z\r\n", ""),
                                "GET / HTTP/1.1\n\n",
                                "GET / HTTP/1.1\r\nHost: a\r\n\n",
                                "GET / HTTP/1.1\r\n\r\n",  // no Host
                                "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                                "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /\r\nHost: a\r\n\r\n",
                                "GET HTTP/1.1\r\nHost: a\r\n\r\n",
                                " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET / http/1.1\r\nHost: a\r\n\r\n",
                                "GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
                                post("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "-1\r\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "11111111111111111\r\nhello"),
                                post("Transfer-Encoding: chunked\r\n", "4\r\nhello\r\n0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "5\r\nhello0\r\n\r\n"),
                                post("Transfer-Encoding: chunked\r\n", "0\r\nno trailer\r\n\r\n")}) {
    EXPECT_EQ(status_of(bytes), 400) << bytes;
  }
  EXPECT_EQ(status_of(post("Transfer-Encoding: gzip, chunked\r\n", "")), 501);
  EXPECT_EQ(status_of(post("Transfer-Encoding: identity\r\n", "")), 501);
}

TEST(HttpParser, BoundsEveryPart) {
  const HttpLimits limits{.head_bytes = 200, .head_lines = 4, .body_bytes = 10};
  EXPECT_EQ(status_of(get("X: " + std::string(100, 'x') + "\r\n"), limits), 200);
  EXPECT_EQ(status_of(get("X: " + std::string(200, 'x') + "\r\n"), limits), 431);
  EXPECT_EQ(status_of(std::string(500, 'G'), limits), 431);
  EXPECT_EQ(status_of(get("X: \x01" + std::string(200, 'x') + "\r\n"), limits), 400) << "whichever comes first";
  EXPECT_EQ(status_of(get("A: 1\r\nB: 1\r\nC: 1\r\n"), limits), 200);
  EXPECT_EQ(status_of(get("A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n"), limits), 431);
  EXPECT_EQ(status_of(post("Content-Length: 10\r\n", "0123456789"), limits), 200);
  EXPECT_EQ(status_of(post("Content-Length: 11\r\n", ""), limits), 413) << "before any of it is read";
  EXPECT_EQ(status_of(post("Content-Length: 99999999999999999999\r\n", ""), limits), 400);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status_of(post(chunked, "a\r\n0123456789\r\n0\r\n\r\n"), {.body_bytes = 30}), 200);
  EXPECT_EQ(status_of(post(chunked, "b\r\n"), limits), 413) << "before any of it is read";
  EXPECT_EQ(status_of(post(chunked, "9\r\n012345678\r\n2\r\n"), {.body_bytes = 10}), 413);
  EXPECT_EQ(status_of(post(chunked, "ffffffffffffffff\r\n"), limits), 413);
  EXPECT_EQ(status_of(post(chunked, "1;" + std::string(300, 'x'))), 400) << "an extension";
  std::string crumbs;
  for (int i = 0; i < 20; ++i) crumbs += "1\r\nx\r\n";
  EXPECT_EQ(status_of(post(chunked, crumbs), {.body_bytes = 20}), 413) << "more framing than body";
  std::string trailers = "0\r\n";
  for (int i = 0; i < 10; ++i) trailers += "X: y\r\n";
  EXPECT_EQ(status_of(post(chunked, trailers), {.head_lines = 4}), 431);
}

}  // namespace
}  // namespace shale
