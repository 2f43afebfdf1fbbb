#include "tiers/s3/s3_tier.h"

#include <curl/curl.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "io/crc32c.h"
#include "tiers/blob_files.h"
#include "tiers/blob_frame.h"
#include "tiers/s3/s3_read.h"

namespace shale {
namespace {

constexpr unsigned kHashingThreads = 2;
constexpr double kTouchAfterS = kAbandonedAfterSeconds / 2;
constexpr std::string_view kMarker = "shale-s3-1";  // the layout's version; its content is nothing to anybody

std::string base64(std::uint32_t big_endian) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::uint64_t bits = std::uint64_t{big_endian} << 4;  // 36 bits: six digits
  std::string text;
  for (int shift = 30; shift >= 0; shift -= 6) text += kDigits[bits >> shift & 63];
  return text + "==";
}

std::optional<std::time_t> date_in(const HttpHead& head, std::string_view header) {
  const std::time_t time = curl_getdate(std::string(head.header(header)).c_str(), nullptr);
  return time < 0 ? std::nullopt : std::optional(time);
}

}  // namespace

S3Tier::S3Tier(S3TierOptions options, const Clock& clock)
    : Tier({options.name, options.capacity_bytes, {30e-3, 2e8, 1e8}}, clock),
      options_(std::move(options)),
      breaker_({}, clock),
      buffers_(BufferPool::make()),
      client_(options_.client),
      hashing_(kHashingThreads, StandBack::kForWrites),
      opening_([this] { return try_conditional_write(); },
               [this] { return count_stored([this] { return total_bytes(); }); }) {}

Result<std::unique_ptr<Tier>> S3Tier::make(S3TierOptions options, bool late, const Clock& clock) {
  std::unique_ptr<S3Tier> tier(new S3Tier(std::move(options), clock));
  SHALE_TRY(tier->opening_.begin(late));
  return tier;
}

Status S3Tier::try_conditional_write() {
  S3Call call;
  call.method = "PUT";
  call.key = options_.prefix + std::string(kMarker);
  call.headers = {{"If-None-Match", "*"}};
  for (int time = 0; time < 2; ++time) {
    const Result<HttpAnswer> answer = client_.wait(call);
    if (!answer) {
      if (answer.error().code == ErrorCode::kUnsupported) return {};
      return std::unexpected(answer.error());
    }
    conditional_ = answer->head.status == 412;
    if (conditional_) return {};
  }
  return {};
}

Status S3Tier::reachable() const { return opening_.reached(); }

std::string S3Tier::describe() const {
  return fmt::format("{}: {}{}", options_.name, client_.place(),
                     options_.prefix.empty() ? "" : fmt::format(", keys beginning with '{}'", options_.prefix));
}

std::uint64_t S3Tier::stored_bytes(std::uint64_t bytes) const { return framed_bytes(bytes); }

std::optional<Error> S3Tier::trouble() const {
  if (auto error = opening_.trouble()) return error;
  if (auto error = breaker_.trouble()) return error;
  return Tier::trouble();
}

std::string S3Tier::object_prefix(const Hash128& object) const { return options_.prefix + object.hex() + "/"; }

std::string S3Tier::key(const BlobId& id) const { return object_prefix(id.object) + part_name(id.part); }

HttpRequest S3Tier::request_for(std::string method, const BlobId& id, std::string body_sha256) const {
  HttpRequest request{.method = method};
  client_.address({.method = std::move(method), .key = key(id), .body_sha256 = std::move(body_sha256)}, request);
  return request;
}

std::optional<BlobId> S3Tier::blob_of(std::string_view key) const {
  if (!key.starts_with(options_.prefix)) return std::nullopt;
  key.remove_prefix(options_.prefix.size());
  const std::size_t slash = std::min(key.find('/'), key.size());
  const auto object = Hash128::parse(key.substr(0, slash));
  const auto part = slash < key.size() ? parse_part(key.substr(slash + 1)) : std::nullopt;
  return object && part ? std::optional(BlobId{*object, *part}) : std::nullopt;
}

Result<Breaker::Ticket> S3Tier::admit() const {
  SHALE_TRY(reachable());
  return breaker_.admit();
}

// What opening would have refused is now the storage's trouble: a bucket that was removed, credentials that expired.
Error S3Tier::ended_in(Error error) const {
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kIo;
  return error;
}

Result<HttpAnswer> S3Tier::ask(S3Call call) const {
  SHALE_ASSIGN(const auto ticket, admit());
  Result<HttpAnswer> answer = client_.wait(std::move(call));
  if (!answer) answer = std::unexpected(ended_in(answer.error()));
  breaker_.ended(ticket, answer ? Status() : std::unexpected(answer.error()));
  return answer;
}

std::shared_ptr<TierRead> S3Tier::read_impl(const BlobId& id, const BlobRange& range, double start_s) {
  auto read = std::make_shared<PendingRead>(range.offset);
  const auto finish = [this, read, range, start_s](Result<BlobBytes> result) {
    const double seconds = clock_.now_s() - start_s;
    finished_read(start_s, seconds, result, range);
    read->complete(std::move(result), seconds);
  };
  const auto ticket = admit();
  if (!ticket) {
    finish(fail(ErrorCode::kBusy, "{}", ticket.error().message));
    return read;
  }
  read_s3_blob(client_, buffers_, key(id), id, range, [this, finish, ticket = *ticket](Result<BlobBytes> result) {
    if (!result) result = std::unexpected(ended_in(result.error()));
    breaker_.ended(ticket, result ? Status() : std::unexpected(result.error()));
    finish(std::move(result));
  });
  return read;
}

// A blob on its way; kept alive by what is called when its next step is done.
struct S3Tier::Upload {
  BlobId id;
  BlobBytes bytes;
  AlignedBuffer tail;
  S3Call call;
  std::function<void(Result<bool>)> done;
};

std::shared_ptr<TierWrite> S3Tier::write_impl(const BlobId& id, BlobBytes bytes, double start_s) {
  auto write = std::make_shared<PendingWrite>();
  const auto finish = [this, write, start_s, size = bytes->size()](Result<bool> stored) {
    const double seconds = clock_.now_s() - start_s;
    const Status status = stored ? Status() : std::unexpected(stored.error());
    finished_write(start_s, seconds, size, stored.value_or(false), status);
    write->complete(std::move(stored), seconds);
  };
  const auto ticket = admit();
  if (!ticket) {
    finish(fail(ErrorCode::kBusy, "{}", ticket.error().message));
    return write;
  }
  auto started = std::make_shared<Upload>();
  started->id = id;
  started->bytes = std::move(bytes);
  started->done = [this, finish, ticket = *ticket](Result<bool> stored) {
    if (!stored) stored = std::unexpected(ended_in(stored.error()));
    breaker_.ended(ticket, stored ? Status() : std::unexpected(stored.error()));
    finish(std::move(stored));
  };
  hashing_.run([this, started] {
    const Result<bool> prepared = no_memory_is_an_error([&]() -> Result<bool> { return upload(started), true; });
    if (!prepared) started->done(prepared);
  });
  return write;
}

// Frames and hashes; then, where the server would replace what is there, looks for it first.
void S3Tier::upload(const std::shared_ptr<Upload>& upload) {
  const auto blob = upload->bytes->bytes();
  upload->tail = frame_tail(upload->id, blob);
  S3Call& call = upload->call;
  call.method = "PUT";
  call.lane = HttpLane::kWrites;
  call.key = key(upload->id);
  call.body = {blob.first(blob.size() / kIoAlignment * kIoAlignment), upload->tail.bytes()};
  if (!client_.tls()) call.body_sha256 = sha256_hex(call.body);
  std::uint32_t crc = 0;
  for (const auto& piece : call.body) crc = crc32c(crc, piece);
  call.headers = {{"x-amz-checksum-crc32c", base64(crc)}};
  if (conditional_) {
    call.headers.emplace_back("If-None-Match", "*");
    return put(upload);
  }
  {
    const std::lock_guard lock(looking_mutex_);
    const auto [at, first] = looking_.try_emplace(upload->id);
    if (!first) return at->second.push_back(upload);
  }
  look_and_put(upload);
}

// One at a time for each blob, so that of several at once one finds it missing.
void S3Tier::look_and_put(const std::shared_ptr<Upload>& upload) {
  upload->done = [this, id = upload->id, done = std::move(upload->done)](Result<bool> stored) {
    done(std::move(stored));
    std::shared_ptr<Upload> next;
    {
      const std::lock_guard lock(looking_mutex_);
      const auto at = looking_.find(id);
      if (!at->second.empty()) {
        next = std::move(at->second.front());
        at->second.pop_front();
      } else {
        looking_.erase(at);
      }
    }
    if (next) look_and_put(next);
  };
  S3Call look{.method = "HEAD", .key = upload->call.key};
  look.done = [this, upload](const Result<HttpAnswer>& answer) {
    if (!answer) return upload->done(std::unexpected(answer.error()));
    answer->head.status == 404 ? put(upload) : touch(upload);
  };
  client_.start(std::move(look));
}

void S3Tier::put(const std::shared_ptr<Upload>& upload) {
  upload->call.done = [this, upload](const Result<HttpAnswer>& answer) {
    if (!answer) return upload->done(std::unexpected(answer.error()));
    if (answer->head.status == 404) return upload->done(fail(ErrorCode::kIo, "{}: status 404", client_.place()));
    answer->head.status == 412 ? touch(upload) : upload->done(true);
  };
  client_.start(std::move(upload->call));
}

// It is there already, and somebody needs it: not to be taken for abandoned, its age begins anew before it counts.
void S3Tier::touch(const std::shared_ptr<Upload>& upload) {
  S3Call look{.method = "HEAD", .key = key(upload->id)};
  look.done = [this, upload](const Result<HttpAnswer>& answer) {
    const auto written = answer ? date_in(answer->head, "last-modified") : std::nullopt;
    const auto now = answer ? date_in(answer->head, "date") : std::nullopt;
    if (!written || !now || static_cast<double>(*now - *written) < kTouchAfterS) return upload->done(false);
    S3Call copy{.method = "PUT", .key = key(upload->id)};
    copy.headers = {{"x-amz-copy-source", uri_encoded("/" + options_.client.bucket + "/" + copy.key, true)},
                    {"x-amz-metadata-directive", "REPLACE"}};
    copy.done = [upload](const Result<HttpAnswer>&) { upload->done(false); };
    client_.start(std::move(copy));
  };
  client_.start(std::move(look));
}

Result<std::optional<S3Tier::Known>> S3Tier::look_at(const BlobId& id) const {
  SHALE_ASSIGN(const HttpAnswer answer, ask({.method = "HEAD", .key = key(id)}));
  if (answer.head.status == 404) return std::nullopt;
  const auto now = date_in(answer.head, "date"), written = date_in(answer.head, "last-modified");
  Known known;
  known.bytes = std::strtoull(std::string(answer.head.header("content-length")).c_str(), nullptr, 10);
  known.age_s = now && written ? static_cast<double>(std::max<std::time_t>(0, *now - *written)) : 0;
  return known;
}

std::uint64_t S3Tier::blob_bytes_impl(const BlobId& id) const {
  const auto known = look_at(id);
  return known && *known ? (*known)->bytes : 0;
}

double S3Tier::untouched_s(const BlobId& id) const {
  const auto known = look_at(id);
  return known && *known ? (*known)->age_s : 0;
}

Result<std::uint64_t> S3Tier::remove_impl(const BlobId& id) {
  const std::lock_guard lock(removing_[id.object.low % removing_.size()]);
  SHALE_ASSIGN(const auto known, look_at(id));
  if (!known) return 0;
  SHALE_TRY(ask({.method = "DELETE", .key = key(id)}));
  return known->bytes;
}

// Page after page; `listed` is called on the client's thread.
void S3Tier::list_keys(std::string prefix, const Listed& listed, std::shared_ptr<std::vector<S3Listing::Object>> so_far,
                       std::string next) const {
  if (!so_far) so_far = std::make_shared<std::vector<S3Listing::Object>>();
  S3Call call;
  call.query = {{"list-type", "2"}, {"prefix", prefix}};
  if (!next.empty()) call.query.emplace_back("continuation-token", next);
  call.done = [this, prefix, listed, so_far, next](const Result<HttpAnswer>& answer) {
    if (!answer) return listed(std::unexpected(answer.error()));
    if (ending_) return listed(fail(ErrorCode::kCancelled, "the tier is being closed"));
    Result<S3Listing> page = parse_s3_listing(answer->body);
    if (page && !next.empty() && page->next == next) page = fail(ErrorCode::kIo, "a list whose next page is the same");
    if (!page) return listed(std::unexpected(Error{ErrorCode::kIo, client_.place() + ": " + page.error().message}));
    so_far->insert(so_far->end(), page->objects.begin(), page->objects.end());
    if (page->next.empty()) return listed(std::move(*so_far));
    list_keys(prefix, listed, so_far, page->next);
  };
  client_.start(std::move(call));
}

Result<std::vector<S3Listing::Object>> S3Tier::list_objects(std::string prefix) const {
  SHALE_ASSIGN(const auto ticket, breaker_.admit());
  const auto promise = std::make_shared<Promise<std::vector<S3Listing::Object>>>();
  list_keys(std::move(prefix), [promise](auto objects) { promise->set(std::move(objects), 0); });
  auto objects = std::move(promise->wait());
  if (!objects) objects = std::unexpected(ended_in(objects.error()));
  breaker_.ended(ticket, objects ? Status() : std::unexpected(objects.error()));
  return objects;
}

Result<std::vector<BlobId>> S3Tier::list_impl() const {
  SHALE_TRY(reachable());
  SHALE_ASSIGN(const auto objects, list_objects(options_.prefix));
  std::vector<BlobId> ids;
  for (const auto& object : objects) {
    if (const auto id = blob_of(object.key)) ids.push_back(*id);
  }
  std::ranges::sort(ids);
  return ids;
}

Result<std::vector<std::uint32_t>> S3Tier::parts_impl(const Hash128& object) const {
  SHALE_ASSIGN(auto parts, parts_of_impl(std::span(&object, 1)));
  return std::move(parts.front());
}

// All at once: as long as one takes, and again for every so many as the client has connections.
Result<std::vector<std::vector<std::uint32_t>>> S3Tier::parts_of_impl(std::span<const Hash128> objects) const {
  SHALE_ASSIGN(const auto ticket, admit());
  std::vector<std::vector<std::uint32_t>> parts(objects.size());
  const auto promise = std::make_shared<Promise<bool>>();
  std::size_t left = objects.size();  // as `status`: of the client's thread until the promise is set
  Status status;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    list_keys(object_prefix(objects[i]), [&, i, promise](const Result<std::vector<S3Listing::Object>>& listed) {
      if (!listed && status) status = std::unexpected(ended_in(listed.error()));
      for (const auto& object : listed.value_or(std::vector<S3Listing::Object>())) {
        if (const auto id = blob_of(object.key)) parts[i].push_back(id->part);
      }
      if (--left == 0) promise->set(true, 0);
    });
  }
  if (!objects.empty()) (void)promise->wait();
  breaker_.ended(ticket, status);
  SHALE_TRY(status);
  return parts;
}

// What a refused write costs is bounded: a twentieth of the time may go into counting.
bool S3Tier::count_again() {
  const double start_s = clock_.now_s();
  if (!opening_.counted() || start_s < count_again_at_s_) return false;
  const bool counted = count_stored([this] { return total_bytes(); }).has_value();
  count_again_at_s_ = clock_.now_s() + 20 * (clock_.now_s() - start_s);
  return counted;
}

Result<std::uint64_t> S3Tier::total_bytes() const {
  SHALE_ASSIGN(const auto objects, list_objects(options_.prefix));
  std::uint64_t bytes = 0;
  for (const auto& object : objects) bytes += blob_of(object.key) ? object.bytes : 0;
  return bytes;
}

}  // namespace shale
