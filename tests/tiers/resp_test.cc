// Replies of a Redis server, sound and damaged, in any pieces.
#include "io/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tiers/blobs.h"
#include "tiers/redis/redis_blobs.h"
#include "tiers/redis/redis_client.h"

namespace shale::testing {
namespace {

using ReplyKind = RespValue::Kind;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Result<std::vector<RespValue>> parse(std::string_view text, std::size_t piece = 1 << 20, RespParser::Place place = {}) {
  RespParser parser;
  std::vector<RespValue> values;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    auto in = bytes_of(text.substr(at, piece));
    while (!in.empty()) {
      SHALE_ASSIGN(auto value, parser.take(in, place));
      if (value) values.push_back(std::move(*value));
    }
  }
  return values;
}

TEST(RespTest, RepliesComeOutOfAnyPieces) {
  const std::string text =
      "+OK\r\n-ERR no such "
      "thing\r\n:-42\r\n$-1\r\n$0\r\n\r\n$5\r\na\r\nbc\r\n*0\r\n*-1\r\n*3\r\n$1\r\nx\r\n*2\r\n:1\r\n:2\r\n"
      "$-1\r\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    const auto values = parse(text, piece);
    ASSERT_TRUE(values) << values.error().message;
    ASSERT_EQ(values->size(), 9u) << piece;
    EXPECT_EQ((*values)[0].text, "OK");
    EXPECT_EQ((*values)[1].kind, ReplyKind::kError);
    EXPECT_EQ((*values)[1].text, "ERR no such thing");
    EXPECT_EQ((*values)[2].integer, -42);
    EXPECT_EQ((*values)[3].kind, ReplyKind::kNull);
    EXPECT_EQ((*values)[4].kind, ReplyKind::kBulk);
    EXPECT_EQ((*values)[5].text, "a\r\nbc");
    EXPECT_EQ((*values)[6].kind, ReplyKind::kArray);
    EXPECT_EQ((*values)[7].kind, ReplyKind::kNull);
    ASSERT_EQ((*values)[8].items.size(), 3u);
    EXPECT_EQ((*values)[8].items[1].items[1].integer, 2);
  }
}

TEST(RespTest, AStringGoesWhereItsPlaceIs) {
  std::vector<std::byte> there(6);
  const auto place = [&](std::size_t bytes) { return std::span(there).first(bytes == 6 ? 6 : 0); };
  for (const std::size_t piece : {1u, 3u, 100u}) {
    std::ranges::fill(there, std::byte{0});
    const auto values = parse("$6\r\nabc\r\nd\r\n$2\r\nno\r\n*1\r\n$6\r\nlisted\r\n", piece, place).value();
    ASSERT_EQ(values.size(), 3u);
    EXPECT_TRUE(values[0].placed);
    EXPECT_EQ(values[0].integer, 6);
    EXPECT_EQ(std::memcmp(there.data(), "abc\r\nd", 6), 0);
    EXPECT_EQ(values[1].text, "no");
    EXPECT_EQ(values[2].items[0].text, "listed");
  }
}

TEST(RespTest, WhatIsDamagedIsRefused) {
  for (const std::string_view text :
       {"?\r\n", "\r\n", ":\r\n", ":1x\r\n", ":99999999999999999999\r\n", "$-2\r\n", "$99999999999\r\n", "$8388609\r\n",
        "$x\r\n", "*-7\r\n", "*99999999999\r\n", "$1\r\nabc\r\n", "$1\r\na\nb\r\n", "+no end\nof a line\r\n*x\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"}) {
    EXPECT_EQ(code_of(parse(text)), ErrorCode::kCorrupt) << text;
    EXPECT_EQ(code_of(parse(text, 1)), ErrorCode::kCorrupt) << text;
  }
  EXPECT_EQ(code_of(parse("+" + std::string(1 << 20, 'x'), 1000)), ErrorCode::kCorrupt) << "a line without an end";
  for (const std::size_t piece : {1u, 1000u, 1u << 20}) {
    EXPECT_EQ(code_of(parse("+" + std::string(100'000, 'x') + "\r\n", piece)), ErrorCode::kCorrupt) << piece;
  }
  std::string many = "*1000000\r\n";
  for (int i = 0; i < 1000000; ++i) many += ":1\r\n";
  EXPECT_EQ(code_of(parse(many)), ErrorCode::kCorrupt) << "more than anybody asks for";
}

TEST(RespTest, AnyBytesAreAReplyOrAnError) {
  std::mt19937 random(7);
  const std::string_view letters = "+-:$*0123456789\r\n\r\n\r\nab";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto n = random() % 40; n > 0; --n) text += letters[random() % letters.size()];
    (void)parse(text, 1 + random() % 8);
  }
}

TEST(RespTest, CommandsLeaveRoomForAPayload) {
  const RespCommand get = resp_command(std::array<std::string_view, 2>{"GET", "a key"});
  EXPECT_EQ(get.head, "*2\r\n$3\r\nGET\r\n$5\r\na key\r\n");
  EXPECT_EQ(get.tail, "");
  const RespCommand set =
      resp_command(std::array<std::string_view, 2>{"SET", "k"}, 3, std::array<std::string_view, 1>{"NX"});
  EXPECT_EQ(set.head + "abc" + set.tail, "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n$2\r\nNX\r\n");
}

TEST(RedisTest, SlotsAreThoseOfTheSpecification) {
  EXPECT_EQ(redis_slot("123456789"), 0x31c3 % 16384);
  EXPECT_EQ(redis_slot("{user1000}.following"), redis_slot("user1000"));
  EXPECT_EQ(redis_slot("foo{}{bar}"), redis_slot("foo{}{bar}"));
  EXPECT_NE(redis_slot("foo{}{bar}"), redis_slot("bar"));
  EXPECT_EQ(redis_slot("foo{{bar}}"), redis_slot("{bar"));
}

TEST(RedisTest, RedirectionsAreUnderstoodOrNone) {
  const RedisNode from{"here", 1};
  const auto moved = parse_redirection("MOVED 3999 127.0.0.1:6381", from).value();
  EXPECT_FALSE(moved.asking);
  EXPECT_EQ(moved.slot, 3999);
  EXPECT_EQ(moved.node, (RedisNode{"127.0.0.1", 6381}));
  EXPECT_TRUE(parse_redirection("ASK 0 :7", from)->asking);
  EXPECT_EQ(parse_redirection("ASK 0 :7", from)->node, (RedisNode{"here", 7}));
  EXPECT_EQ(parse_redirection("MOVED 1 ::1:7", from)->node, (RedisNode{"::1", 7}));
  for (const std::string_view other : {"ERR no", "MOVED", "MOVED ", "MOVED 1", "MOVED x h:1", "MOVED 16384 h:1",
                                       "MOVED 1 h", "MOVED 1 h:", "MOVED 1 h:0", "MOVED 1 h:70000", "ASK -1 h:1"}) {
    EXPECT_FALSE(parse_redirection(other, from)) << other;
  }
}

TEST(RedisTest, FieldsOfBlobsAreWhatWasWrittenOrDamaged) {
  const BlobId id = blob_id(1, 1);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kRedisInlineBytes}) {
    const BlobBytes bytes = blob_bytes(id, size);
    const std::string head = redis_head(bytes->bytes());
    ASSERT_EQ(parse_redis_head(head)->inlined->size(), size);
    EXPECT_EQ(std::memcmp(parse_redis_head(head)->inlined->data(), bytes->data(), size), 0);
  }
  const std::string large = redis_head(blob_bytes(id, kRedisInlineBytes + 1)->bytes());
  EXPECT_EQ(large.size(), 9u);
  EXPECT_FALSE(parse_redis_head(large)->inlined);
  EXPECT_EQ(parse_redis_head(large)->bytes, kRedisInlineBytes + 1);
  using std::string_literals::operator""s;
  for (const std::string& bad :
       {""s, "p"s, "x"s, "p12345678901"s, "p\1\0\0\0\0\0\0\0"s, "p\377\377\377\377\377\377\377\377"s,
        "i" + std::string(kRedisInlineBytes + 1, 'a'), large.substr(0, 8)}) {
    EXPECT_EQ(code_of(parse_redis_head(bad)), ErrorCode::kCorrupt) << bad.size();
  }
  for (const std::uint32_t part : {0u, 7u, 0x80000001u, BlobId::kManifest}) {
    EXPECT_EQ(parse_redis_field(redis_field(part)), part);
  }
  for (const std::string_view bad : {"", "01", "+1", "4294967295", "99999999999", "manifests", "1 "}) {
    EXPECT_FALSE(parse_redis_field(bad)) << bad;
  }
}

}  // namespace
}  // namespace shale::testing
