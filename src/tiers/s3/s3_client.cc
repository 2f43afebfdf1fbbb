#include "tiers/s3/s3_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/clock.h"
#include "core/random.h"
#include "core/utf8.h"
#include "io/s3_xml.h"
#include "tier/pending.h"

namespace shale {
namespace {

constexpr double kBackoffS = 0.05, kBackoffMaxS = 2;  // doubled after every attempt, of which a random share is waited
constexpr unsigned kAttemptsMax = 8;
constexpr std::size_t kToldBytes = 500;  // of what is told, some of it in the server's words
constexpr std::int64_t kSkewToleratedS = 60;
constexpr double kLookForCredentialsEveryS = 5;
// The share of a call's remaining time for an attempt that can go on where it was cut off, or that costs little:
// another connection often answers at once.
constexpr double kShareOfAttempt = 0.5;
// So slow each of the uploads may be that go at once, and share a network.
constexpr double kUploadBytesPerS = 16 << 10;
// Smaller uploads have the deadline of all else: whether they still move cannot be told within it.
constexpr double kLargeUploadBytes = 256 << 10;

double now_s() { return RealClock().now_s(); }

double random_share() { return static_cast<double>(random_number() >> 11) * 0x1p-53; }

// Proxies say 404, too, where they know of no server to ask; what they say beside it is no error of S3.
bool is_of_a_proxy(const HttpAnswer& answer, const S3Complaint& complaint) {
  return answer.head.status == 404 && complaint.code.empty() && !answer.body.empty();
}

bool is_answer(const HttpAnswer& answer, const S3Complaint& complaint) {
  const int status = answer.head.status;
  if (status == 404) return complaint.code != "NoSuchBucket" && !is_of_a_proxy(answer, complaint);
  return (status >= 200 && status < 300) || status == 412 || status == 416;
}

bool may_pass(const HttpAnswer& answer, const S3Complaint& complaint) {
  constexpr int kStatuses[] = {0, 408, 409, 429, 500, 502, 503, 504};
  return std::ranges::find(kStatuses, answer.head.status) != std::end(kStatuses) || is_of_a_proxy(answer, complaint) ||
         complaint.code == "RequestTimeout" || complaint.code == "SlowDown";
}

bool is_about_credentials(std::string_view code) {
  constexpr std::string_view kCodes[] = {"AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
                                         "SignatureDoesNotMatch"};
  return std::ranges::find(kCodes, code) != std::end(kCodes);
}

}  // namespace

struct S3Client::Attempts {
  S3Call call;
  unsigned count = 0;
  double deadline_s = 0;  // 0: the first has not been sent
  double begun_s = 0;     // the last
  bool clock_corrected = false, credentials_renewed = false;
  std::uint64_t renewals = 0;  // that there had been when the last was signed
};

S3Client::S3Client(S3ClientOptions options)
    : options_(std::move(options)), credentials_(options_.credentials), http_({}) {
  const bool dotted = options_.bucket.find('.') != std::string::npos;  // one that no certificate's wildcard covers
  const bool by_path = !options_.endpoint.empty() || dotted;
  endpoint_ = options_.endpoint;
  if (endpoint_.empty()) {
    endpoint_ = fmt::format("https://{}s3.{}.amazonaws.com", by_path ? "" : options_.bucket + ".", options_.region);
  }
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  host_ = endpoint_.substr(endpoint_.find("://") + 3);
  path_prefix_ = by_path ? "/" + options_.bucket + "/" : "/";
}

std::string S3Client::place() const { return fmt::format("bucket '{}' at {}", options_.bucket, endpoint_); }

void S3Client::start(S3Call call) {
  auto attempts = std::make_shared<Attempts>();
  attempts->call = std::move(call);
  attempt(attempts, 0);
}

Result<HttpAnswer> S3Client::wait(S3Call call) {
  const auto promise = std::make_shared<Promise<HttpAnswer>>();
  call.done = [promise](Result<HttpAnswer> answer) { promise->set(std::move(answer), 0); };
  start(std::move(call));
  return std::move(promise->wait());
}

void S3Client::attempt(const std::shared_ptr<Attempts>& attempts, double delay_s) {
  HttpRequest request;
  request.method = attempts->call.method;
  request.body = attempts->call.body;
  request.take = attempts->call.take;
  request.ca_file = options_.ca_file;
  request.prepare = [this, attempts](HttpRequest& prepared) {
    const double now = now_s();
    const bool put = attempts->call.method == "PUT";
    double body_bytes = 0;
    for (const auto& piece : attempts->call.body) body_bytes += static_cast<double>(piece.size());
    const bool large = put && body_bytes > kLargeUploadBytes;
    const double upload_s = large ? body_bytes / kUploadBytesPerS : 0;
    if (attempts->count++ == 0) attempts->deadline_s = now + options_.timeout_s + upload_s;
    const double left_s = std::max(0.0, std::min(attempts->deadline_s, end_s()) - now);
    prepared.timeout_s = put ? left_s : left_s * kShareOfAttempt;
    prepared.stall_s = large ? options_.timeout_s : 0;
    attempts->renewals = renewals_;
    attempts->begun_s = now;
    address(attempts->call, prepared);
  };
  request.done = [this, attempts](HttpAnswer&& answer) { finish(attempts, std::move(answer)); };
  http_.send(attempts->call.lane, std::move(request), delay_s);
}

// Until when what was begun may take: whoever ends waits for no more than one deadline, however much is queued.
double S3Client::end_s() {
  if (!http_.closing()) return INFINITY;
  if (closing_end_s_ == 0) closing_end_s_ = now_s() + options_.timeout_s;
  return closing_end_s_;
}

void S3Client::address(const S3Call& call, HttpRequest& request) const {
  std::string path = path_prefix_ + uri_encoded(call.key, true);
  if (call.key.empty() && path.size() > 1) path.pop_back();  // of the bucket itself
  const std::string query = canonical_query(call.query);
  request.url = endpoint_ + path + (query.empty() ? "" : "?" + query);
  request.headers = call.headers;
  request.headers.emplace_back("Host", host_);
  if (call.range) request.headers.emplace_back("Range", call.range());
  const std::string payload(!call.body_sha256.empty() ? call.body_sha256
                            : call.body.empty()       ? sha256_hex("")
                                                      : std::string(kUnsignedPayload));
  request.headers.emplace_back("x-amz-content-sha256", payload);
  const std::lock_guard lock(credentials_mutex_);
  sign({call.method, path, query, payload}, {options_.region}, credentials_, std::time(nullptr) + clock_behind_s_,
       request.headers);
}

void S3Client::finish(const std::shared_ptr<Attempts>& attempts, HttpAnswer answer) {
  const S3Complaint complaint = parse_s3_complaint(answer.body);
  const bool whole = answer.trouble.empty() || answer.refused;
  if (whole && is_answer(answer, complaint)) return attempts->call.done(std::move(answer));
  const double left_s = attempts->deadline_s - now_s();
  const double backoff_s =
      random_share() * std::min(kBackoffMaxS, std::ldexp(kBackoffS, static_cast<int>(attempts->count)));
  if (!attempts->clock_corrected && corrects_clock(answer)) {
    attempts->clock_corrected = true;
    return attempt(attempts, 0);
  }
  if (!attempts->credentials_renewed && !http_.closing() && renews_credentials(*attempts, answer)) {
    attempts->credentials_renewed = true;
    return attempt(attempts, 0);
  }
  // An upload has stalled, or was cut after it had moved for longer than anything else may take.
  const bool given_up = !whole && attempts->call.method == "PUT" && now_s() - attempts->begun_s >= options_.timeout_s;
  const bool again = (!whole || may_pass(answer, complaint)) && attempts->count < kAttemptsMax && backoff_s < left_s &&
                     !given_up && !http_.closing();
  if (again) return attempt(attempts, backoff_s);
  attempts->call.done(std::unexpected(error_of(*attempts, answer)));
}

// A signature is refused where this machine's clock is a quarter of an hour off; the answer has the server's.
bool S3Client::corrects_clock(const HttpAnswer& answer) {
  if (answer.head.status != 403) return false;
  const std::time_t theirs = curl_getdate(std::string(answer.head.header("date")).c_str(), nullptr);
  if (theirs < 0) return false;
  const std::int64_t behind_s = theirs - std::time(nullptr);
  if (std::abs(behind_s - clock_behind_s_) <= kSkewToleratedS) return false;
  clock_behind_s_ = behind_s;
  return true;
}

// Those that are good for hours alone are replaced where they were found. Answers to HEAD do not say what is wrong.
bool S3Client::renews_credentials(const Attempts& attempts, const HttpAnswer& answer) {
  const int status = answer.head.status;
  const bool refused = status == 401 || status == 403 || (status == 400 && answer.body.empty()) ||
                       is_about_credentials(parse_s3_complaint(answer.body).code);
  if (!refused) return false;
  if (attempts.renewals != renewals_) return true;
  if (!options_.credentials_now || now_s() < look_for_others_at_s_) return false;
  look_for_others_at_s_ = now_s() + kLookForCredentialsEveryS;
  auto found = options_.credentials_now();
  if (!found || *found == credentials_) return false;
  const std::lock_guard lock(credentials_mutex_);
  credentials_ = std::move(*found);
  ++renewals_;
  return true;
}

Error S3Client::error_of(const Attempts& attempts, const HttpAnswer& answer) const {
  const auto error = [&](ErrorCode code, std::string_view what) {
    return Error{code, fmt::format("{}: {}", place(), printable(what, kToldBytes))};
  };
  const HttpHead& head = answer.head;
  const S3Complaint complaint = parse_s3_complaint(answer.body);
  const bool of_a_proxy = is_of_a_proxy(answer, complaint);
  if (complaint.code == "NoSuchBucket" || (head.status == 404 && attempts.call.key.empty() && !of_a_proxy)) {
    return error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no such bucket: create it (aws s3 mb s3://{}), or correct the tier's URL",
                             options_.bucket));
  }
  const std::string region(complaint.region.empty() ? head.header("x-amz-bucket-region") : complaint.region);
  if ((head.status == 301 || head.status == 307 || head.status == 400) && !region.empty() &&
      region != options_.region) {
    return error(ErrorCode::kInvalidArgument,
                 fmt::format("it lies in region '{}', not in '{}': write region={}", region, options_.region, region));
  }
  if (is_about_credentials(complaint.code) || head.status == 401 || head.status == 403) {
    return error(ErrorCode::kInvalidArgument,
                 fmt::format("the server refuses the credentials of {} ({}): correct them, or let them read, write, "
                             "list and delete there",
                             options_.credentials_from, complaint.code.empty() ? "403" : complaint.code));
  }
  std::string what = answer.trouble;
  if (what.empty() && of_a_proxy) what = "status 404, and not in the words of S3: something between answers for it";
  if (what.empty()) what = fmt::format("status {} {} {}", head.status, complaint.code, complaint.message);
  if (attempts.count > 1) what += fmt::format(" ({} attempts)", attempts.count);
  const bool full = head.status == 507 || complaint.code == "QuotaExceeded";
  return error(full ? ErrorCode::kFull : head.status == 501 ? ErrorCode::kUnsupported : ErrorCode::kIo, what);
}

}  // namespace shale
