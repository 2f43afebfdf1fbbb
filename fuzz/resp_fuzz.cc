// Replies of a Redis server: any bytes, in any pieces, are replies or an error, the same in all pieces; what is made of
// a field of a blob, and of a redirection, is sound or refused.
#include <vector>

#include "input.h"
#include "io/resp.h"
#include "tiers/redis/redis_blobs.h"

namespace {

using namespace shale;

void check_value(const RespValue& value, std::size_t depth) {
  check(depth <= 9);
  check(value.text.size() <= kRespBulkBytesMax);
  for (const RespValue& item : value.items) check_value(item, depth + 1);
  (void)parse_redis_head(value.text);
  if (const auto part = parse_redis_field(value.text)) check(redis_field(*part) == value.text);
  if (const auto to = parse_redirection(value.text, {"host", 1})) check(to->slot < 16384 && to->node.port != 0);
}

// How many replies; negative after an error.
long replies(std::span<const std::byte> bytes, std::size_t piece, bool placed) {
  RespParser parser;
  std::vector<std::byte> there;
  long count = 0;
  const auto place = [&](std::size_t wanted) {
    there.resize(placed ? wanted : 0);
    return std::span<std::byte>(there);
  };
  while (!bytes.empty()) {
    auto in = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(in.size());
    while (!in.empty()) {
      const auto value = parser.take(in, place);
      if (!value) return -1 - count;
      if (*value) check_value(**value, 0);
      count += value->has_value();
    }
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const long whole = replies(bytes, size + 1, false);
  check(replies(bytes, 1, false) == whole);
  check(replies(bytes, 7, true) == whole);
  return 0;
}
