// Blobs in a Redis server or cluster (docs/formats/redis.md): a hash an object, whose fields are its parts, and strings
// for the bytes of those that are not small. A blob is there when its field is, which is written last.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer_pool.h"
#include "tiers/redis/redis_client.h"

namespace shale {

// Values that are longer than that are cut: a little less than a power of two, for what the server adds to it.
inline constexpr std::size_t kRedisPieceBytes = (std::size_t{4} << 20) - 64;
inline constexpr std::uint64_t kRedisBlobBytesMax = std::uint64_t{4} << 30;
// Bytes that are not longer lie in the field itself.
inline constexpr std::size_t kRedisInlineBytes = 16 << 10;

// A field's value: the blob's bytes, or how many its pieces have.
struct RedisHead {
  std::optional<std::string_view> inlined = {};
  std::uint64_t bytes = 0;
};
std::string redis_head(std::span<const std::byte> blob);
// kCorrupt, whatever the bytes.
Result<RedisHead> parse_redis_head(std::string_view value);

// "3", "manifest"; and back.
std::string redis_field(std::uint32_t part);
std::optional<std::uint32_t> parse_redis_field(std::string_view field);

// Thread-safe. A blob that is not there is kNotFound, no room is kFull, anything else that went wrong is kIo, but for
// damage.
class RedisBlobs {
 public:
  RedisBlobs(std::string prefix, RedisNode node, RedisAccess access, const Clock& clock);

  // As RedisClient's.
  bool cluster() const { return client_.cluster(); }
  BreakerState breakers() const { return client_.breakers(); }
  std::optional<Error> trouble() const { return client_.trouble(); }

  // What looks at everything ends early from now on: kCancelled.
  void end() { ending_ = true; }

  // Whether the server answers, and learns how much memory it may use. kInvalidArgument where it wants another
  // password.
  Status greet();
  // `done` is called once, on another thread; destroying this cancels. A range gives the bytes in it alone.
  void read(const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done);
  // Whether the blob was not there yet.
  void write(const BlobId& id, BlobBytes bytes, std::function<void(Result<bool>)> done);

  // These block. How long the blob was that is gone now.
  Result<std::optional<std::uint64_t>> remove(const BlobId& id);
  Result<std::vector<BlobId>> list();
  Result<std::vector<std::vector<std::uint32_t>>> parts(std::span<const Hash128> objects);
  Result<std::vector<std::optional<std::uint64_t>>> sizes(std::span<const BlobId> ids);
  // Seconds for which nobody has read or written the blob or anything of its object; 0 where that cannot be told. On
  // servers older than Redis 7.2, who lists or looks counts, too.
  Result<double> idle_s(const BlobId& id);

 private:
  class ReadJob;
  class WriteJob;
  std::string key(const Hash128& object) const;
  std::string piece_key(const BlobId& id, std::uint64_t piece) const;
  std::optional<Hash128> object_of(std::string_view key) const;
  Result<std::vector<std::string>> keys_on(const RedisNode& node);

  const std::string prefix_;
  const std::shared_ptr<BufferPool> buffers_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::uint64_t> memory_bytes_max_ = 0;  // of the server; 0: not known, or no bound
  RedisClient client_;
};

}  // namespace shale
