// A bucket as a tier: an object for each blob (docs/formats/s3.md).
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/buffer_pool.h"
#include "io/io_threads.h"
#include "io/s3_xml.h"
#include "tier/breaker.h"
#include "tier/late_opening.h"
#include "tier/pending.h"
#include "tier/tier.h"
#include "tiers/s3/s3_client.h"

namespace shale {

struct S3TierOptions {
  std::string name;
  std::uint64_t capacity_bytes = kUnlimited;
  std::string prefix;  // of all keys: empty, or ending in '/'
  S3ClientOptions client;
};

class S3Tier final : public Tier {
 public:
  // Asks the bucket what it holds. kInvalidArgument where it, or the credentials, are not as they should be; where the
  // server does not answer, kIo, or, if `late`, a tier that is not reachable until it does, and of which what it holds
  // is counted beside: a bounded one has no room before that.
  static Result<std::unique_ptr<Tier>> make(S3TierOptions options, bool late, const Clock& clock);
  ~S3Tier() override { ending_ = true; }

  Status reachable() const override;
  std::uint64_t capacity_bytes() const override { return opening_.room(Tier::capacity_bytes()); }
  bool persistent() const override { return true; }
  std::string describe() const override;
  std::uint64_t stored_bytes(std::uint64_t bytes) const override;
  double untouched_s(const BlobId& id) const override;
  std::optional<Error> trouble() const override;
  std::optional<BreakerState> breaker() const override { return breaker_.state(); }
  AskedAtOnce asked_at_once() const override { return {.objects = 512, .guesses = 32}; }

  // A request that another program may send for a blob's object: signed, good for some minutes. For comparisons.
  HttpRequest request_for(std::string method, const BlobId& id, std::string body_sha256 = {}) const;

 private:
  struct Upload;
  struct Known {
    std::uint64_t bytes = 0;
    double age_s = 0;
  };
  using Listed = std::function<void(Result<std::vector<S3Listing::Object>>)>;

  S3Tier(S3TierOptions options, const Clock& clock);
  // Learns whether the server keeps what is there when it is asked to write only what is not.
  Status try_conditional_write();

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override;
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override;
  Result<std::uint64_t> remove_impl(const BlobId& id) override;
  Result<std::vector<BlobId>> list_impl() const override;
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override;
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override;
  std::uint64_t blob_bytes_impl(const BlobId& id) const override;
  bool count_again() override;

  void upload(const std::shared_ptr<Upload>& upload);
  void look_and_put(const std::shared_ptr<Upload>& upload);
  void put(const std::shared_ptr<Upload>& upload);
  void touch(const std::shared_ptr<Upload>& upload);

  // What the breaker lets through, told how it ended. Errors are those of a tier in use.
  Result<HttpAnswer> ask(S3Call call) const;
  Result<Breaker::Ticket> admit() const;
  Error ended_in(Error error) const;
  Result<std::optional<Known>> look_at(const BlobId& id) const;  // none where it is not there
  void list_keys(std::string prefix, const Listed& listed, std::shared_ptr<std::vector<S3Listing::Object>> so_far = {},
                 std::string next = {}) const;
  Result<std::vector<S3Listing::Object>> list_objects(std::string prefix) const;
  Result<std::uint64_t> total_bytes() const;

  std::string object_prefix(const Hash128& object) const;
  std::string key(const BlobId& id) const;
  std::optional<BlobId> blob_of(std::string_view key) const;

  const S3TierOptions options_;
  mutable Breaker breaker_;
  const std::shared_ptr<BufferPool> buffers_;
  std::array<std::mutex, 16> removing_;  // by object: of two that remove a blob one counts it
  std::atomic<bool> conditional_ = false;
  std::atomic<double> count_again_at_s_ = 0;
  std::mutex looking_mutex_;
  std::map<BlobId, std::deque<std::shared_ptr<Upload>>> looking_;  // in flight, and behind each what waits for it
  std::atomic<bool> ending_ = false;                               // no further page is asked for
  // Operations in flight end here, while all that they use still lives.
  mutable S3Client client_;
  IoThreads hashing_;
  LateOpening opening_;
};

}  // namespace shale
