#include "tier/tier.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>

#include "tier/pending.h"

namespace shale {
namespace {

constexpr double kSilentAfterS = 10, kSilentFactor = 4;

}  // namespace

std::string to_string(const BlobId& id) {
  if (id.part == BlobId::kManifest) return id.object.hex() + "/manifest";
  return fmt::format("{}/{}", id.object.hex(), id.part);
}

Tier::Tier(Options options, const Clock& clock)
    : clock_(clock),
      name_(std::move(options.name)),
      capacity_bytes_(options.capacity_bytes),
      reads_(options.first_guess.latency_s, options.first_guess.read_bytes_per_s),
      writes_(options.first_guess.latency_s, options.first_guess.write_bytes_per_s) {}

std::uint64_t Tier::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_locked();
}

std::uint64_t Tier::used_bytes_locked() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, stored_bytes_ + reserved_bytes_));
}

Status Tier::count_stored(const std::function<Result<std::uint64_t>()>& count) {
  std::int64_t written_before = 0;
  {
    const std::lock_guard lock(mutex_);
    written_before = written_bytes_;
  }
  SHALE_ASSIGN(const std::uint64_t found, count());
  const std::lock_guard lock(mutex_);
  stored_bytes_ = static_cast<std::int64_t>(found) + written_bytes_ - written_before;
  ++counts_;
  return {};
}

void Tier::count_others(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  stored_bytes_ += bytes;
}

bool Tier::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > capacity_bytes_ || used_bytes_locked() > capacity_bytes_ - bytes) return false;
  reserved_bytes_ += static_cast<std::int64_t>(bytes);
  return true;
}

void Tier::Direction::start(double start_s, std::uint64_t bytes_expected) {
  fit.started();
  in_flight.emplace(start_s, bytes_expected);
  bytes_in_flight += bytes_expected;
}

void Tier::Direction::finish(double start_s, double end_s, std::uint64_t bytes, bool cancelled) {
  fit.finished(start_s, end_s, bytes, cancelled);
  // Any of several that started at one instant may go first, but the one expected to be of this size.
  const auto [first, last] = in_flight.equal_range(start_s);
  assert(first != last);
  const auto same = std::find_if(first, last, [bytes](const auto& one) { return one.second == bytes; });
  const auto ended = same != last ? same : first;
  bytes_in_flight -= ended->second;
  in_flight.erase(ended);
}

std::shared_ptr<TierRead> Tier::read(const BlobId& id, std::uint64_t bytes_expected) {
  const double start_s = clock_.now_s();
  {
    const std::lock_guard lock(mutex_);
    if (bytes_expected == 0 && stats_.reads > 0) bytes_expected = stats_.read_bytes / stats_.reads;
    reads_.start(start_s, bytes_expected);
  }
  return read_impl(id, {}, start_s);
}

std::shared_ptr<TierRead> Tier::read(const BlobId& id, const BlobRange& range) {
  if (range.whole()) return read(id);
  const double start_s = clock_.now_s();
  {
    const std::lock_guard lock(mutex_);
    reads_.start(start_s, range.bytes);
  }
  return read_impl(id, range, start_s);
}

std::shared_ptr<TierWrite> Tier::write(const BlobId& id, BlobBytes bytes) {
  const double start_s = clock_.now_s();
  const std::uint64_t size = bytes->size();
  if (read_only()) {
    const std::lock_guard lock(mutex_);
    ++stats_.write_errors;
    return finished_tier_write(
        fail(ErrorCode::kBusy, "{} is open read-only: another process writes to it", describe()));
  }
  if (!reserve(stored_bytes(size)) && !(count_again() && reserve(stored_bytes(size)))) {
    if (contains(id)) return finished_tier_write(false);
    const std::lock_guard lock(mutex_);
    ++stats_.refused_full;
    return finished_tier_write(fail(ErrorCode::kFull, "{} is full: {} of {} bytes used, {} more asked for", name_,
                                    used_bytes_locked(), capacity_bytes_, stored_bytes(size)));
  }
  {
    const std::lock_guard lock(mutex_);
    writes_.start(start_s, size);
  }
  return write_impl(id, std::move(bytes), start_s);
}

Status Tier::remove(const BlobId& id) {
  if (read_only()) {
    return fail(ErrorCode::kBusy, "{} is open read-only: another process writes to it", describe());
  }
  std::uint64_t counts_before = 0;
  {
    const std::lock_guard lock(mutex_);
    counts_before = counts_;
  }
  const Result<std::uint64_t> freed = [&] {
    const Call call(*this);
    return remove_impl(id);
  }();
  if (!freed) return std::unexpected(freed.error());
  const std::lock_guard lock(mutex_);
  // Whoever has counted meanwhile may have found it gone already.
  if (counts_ == counts_before) stored_bytes_ -= static_cast<std::int64_t>(*freed);
  stats_.removals += *freed > 0;
  return {};
}

void Tier::finished_read(double start_s, double seconds, const Result<BlobBytes>& result, const BlobRange& range,
                         std::uint64_t bytes_cancelled) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = result ? std::min<std::uint64_t>((*result)->size(), range.bytes) : 0;
  const bool cancelled = !result && result.error().code == ErrorCode::kCancelled;
  reads_.finish(start_s, start_s + seconds, result ? bytes : bytes_cancelled, cancelled);
  if (result) {
    ++stats_.reads;
    stats_.read_bytes += bytes;
    stats_.read_seconds += seconds;
    read_trouble_.reset();
  } else if (!cancelled) {
    const bool missed = result.error().code == ErrorCode::kNotFound;
    ++(missed ? stats_.misses : stats_.read_errors);
    if (missed) read_trouble_.reset();
    if (result.error().code == ErrorCode::kIo) read_trouble_ = result.error();
  }
}

void Tier::finished_write(double start_s, double seconds, std::uint64_t bytes, bool stored, const Status& status) {
  const std::lock_guard lock(mutex_);
  const bool cancelled = !status && status.error().code == ErrorCode::kCancelled;
  writes_.finish(start_s, start_s + seconds, stored || cancelled ? bytes : 0, cancelled);
  const auto room = static_cast<std::int64_t>(stored_bytes(bytes));
  reserved_bytes_ -= room;
  if (stored) {
    stored_bytes_ += room;
    written_bytes_ += room;
  }
  if (status) {
    ++stats_.writes;
    stats_.written_bytes += stored ? bytes : 0;
    stats_.write_seconds += seconds;
    if (stored) write_trouble_.reset();
  } else if (!cancelled) {
    const ErrorCode code = status.error().code;
    if (code == ErrorCode::kIo || code == ErrorCode::kFull) write_trouble_ = status.error();
    ++(status.error().code == ErrorCode::kFull ? stats_.refused_full : stats_.write_errors);
  }
}

Tier::Call::Call(const Tier& tier) : tier_(tier) {
  const double now_s = tier.clock_.now_s();
  const std::lock_guard lock(tier.mutex_);
  start_ = tier.calls_.insert(now_s);
}

Tier::Call::~Call() {
  const std::lock_guard lock(tier_.mutex_);
  tier_.calls_.erase(start_);
}

Result<std::vector<BlobId>> Tier::list() const {
  const Call call(*this);
  return list_impl();
}

Result<std::vector<std::uint32_t>> Tier::parts(const Hash128& object) const {
  const Call call(*this);
  return parts_impl(object);
}

Result<std::vector<std::vector<std::uint32_t>>> Tier::parts_of(std::span<const Hash128> objects) const {
  const Call call(*this);
  return parts_of_impl(objects);
}

Result<std::vector<std::vector<std::uint32_t>>> Tier::parts_of_impl(std::span<const Hash128> objects) const {
  std::vector<std::vector<std::uint32_t>> found(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i) {
    SHALE_ASSIGN(found[i], parts_impl(objects[i]));
  }
  return found;
}

std::uint64_t Tier::blob_bytes(const BlobId& id) const {
  const Call call(*this);
  return blob_bytes_impl(id);
}

// For how long something has been in flight beyond what it may take; 0 where nothing has. Calls count for what is told
// to people alone: one that looks through all that is there may take long where nothing is wrong.
double Tier::silent_s(bool of_calls) const {
  const double now_s = clock_.now_s();
  const auto beyond = [&](double start_s, double expected_s) {
    const double seconds = now_s - start_s;
    return seconds > std::max(kSilentAfterS, kSilentFactor * expected_s) ? seconds : 0;
  };
  double silent_s = of_calls && !calls_.empty() ? beyond(*calls_.begin(), 0) : 0;
  for (const Direction* direction : {&reads_, &writes_}) {
    if (direction->in_flight.empty()) continue;
    const SpeedFit::Line fit = direction->fit.fit(now_s);
    const double expected_s = fit.latency_s + static_cast<double>(direction->bytes_in_flight) / fit.bytes_per_s;
    silent_s = std::max(silent_s, beyond(direction->in_flight.begin()->first, expected_s));
  }
  return silent_s;
}

bool Tier::silent() const {
  const std::lock_guard lock(mutex_);
  return silent_s(false) > 0;
}

std::optional<Error> Tier::trouble() const {
  const std::lock_guard lock(mutex_);
  if (const double seconds = silent_s(true); seconds > 0) {
    return Error{ErrorCode::kIo, fmt::format("has not answered for {:.0f} s", seconds)};
  }
  return write_trouble_ ? write_trouble_ : read_trouble_;
}

TierStats Tier::stats() const {
  const std::lock_guard lock(mutex_);
  TierStats stats = stats_;
  stats.read_wait_seconds = reads_.fit.waited_s();
  stats.write_wait_seconds = writes_.fit.waited_s();
  return stats;
}

TierSpeed Tier::speed() const {
  const std::lock_guard lock(mutex_);
  const double now_s = clock_.now_s();
  const SpeedFit::Line reads = reads_.fit.fit(now_s), writes = writes_.fit.fit(now_s);
  return {reads.latency_s, reads.bytes_per_s,     writes.bytes_per_s,
          reads.samples,   reads.tells_bandwidth, writes.tells_bandwidth};
}

TierQueue Tier::reads_queued() const {
  const std::lock_guard lock(mutex_);
  return {reads_.in_flight.size(), reads_.bytes_in_flight};
}

TierQueue Tier::writes_queued() const {
  const std::lock_guard lock(mutex_);
  return {writes_.in_flight.size(), writes_.bytes_in_flight};
}

double Tier::read_eta_s(std::uint64_t bytes) const {
  const TierSpeed speed = this->speed();
  return speed.latency_s + static_cast<double>(reads_queued().bytes + bytes) / speed.read_bytes_per_s;
}

void Tier::expect(const TierSpeed& speed) {
  const double now_s = clock_.now_s();
  const std::lock_guard lock(mutex_);
  reads_.fit.expect(speed.latency_s, speed.read_bytes_per_s, now_s);
  writes_.fit.expect(speed.latency_s, speed.write_bytes_per_s, now_s);
}

Status Tier::measure() {
  const std::uint64_t seed[] = {static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(clock_.now_s() * 1e9)};
  const Hash128 object = hash128(std::as_bytes(std::span(seed)));
  for (int i = 0; i < 3; ++i) SHALE_TRY(measure_reads_and_writes(object, 1, 256 << 10));
  return measure_reads_and_writes(object, 2, 4 << 20);
}

Status Tier::measure_reads_and_writes(Hash128 object, std::uint32_t blobs, std::uint64_t bytes) {
  const auto buffer = std::make_shared<AlignedBuffer>(bytes);
  std::memset(buffer->data(), 0x5a, buffer->size());
  std::vector<std::shared_ptr<TierWrite>> writes;
  std::vector<std::shared_ptr<TierRead>> reads;
  Status status;
  const auto note = [&status](const auto& result) {
    if (status && !result) status = std::unexpected(result.error());
  };
  for (std::uint32_t part = 0; part < blobs; ++part) writes.push_back(write({object, part}, buffer));
  for (const auto& write : writes) note(write->wait());
  if (status) {
    for (std::uint32_t part = 0; part < blobs; ++part) reads.push_back(read({object, part}));
    for (const auto& read : reads) note(read->take());
  }
  for (std::uint32_t part = 0; part < blobs; ++part) note(remove({object, part}));
  return status;
}

Status Tier::check_integrity() const {
  SHALE_ASSIGN(const auto blobs, list());
  std::uint64_t total = 0;
  for (const BlobId& id : blobs) total += blob_bytes(id);
  if (total != used_bytes()) {
    return fail(ErrorCode::kInternal, "{} counts {} bytes as used, its blobs occupy {}", name_, used_bytes(), total);
  }
  return {};
}

}  // namespace shale
