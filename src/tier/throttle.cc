#include "tier/throttle.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "core/units.h"
#include "tier/tier_wrapper.h"

namespace shale {
namespace {

// One direction's bandwidth: transfers pass one after the other.
class Pipe {
 public:
  explicit Pipe(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // When a transfer that starts now has passed.
  double pass(double now_s, std::uint64_t bytes) {
    if (bytes_per_s_ <= 0) return now_s;
    const std::lock_guard lock(mutex_);
    free_at_s_ = std::max(free_at_s_, now_s) + static_cast<double>(bytes) / bytes_per_s_;
    passing_until_s_.push_back(free_at_s_);
    return free_at_s_;
  }

  // Transfers that have not passed, whether or not anybody has asked for those that have.
  TierQueue queued(double now_s) {
    const std::lock_guard lock(mutex_);
    while (!passing_until_s_.empty() && passing_until_s_.front() <= now_s) passing_until_s_.pop_front();
    if (passing_until_s_.empty()) return {};
    return {passing_until_s_.size(), static_cast<std::uint64_t>((free_at_s_ - now_s) * bytes_per_s_)};
  }

 private:
  const double bytes_per_s_;
  std::mutex mutex_;
  double free_at_s_ = 0;
  std::deque<double> passing_until_s_;  // ascending; each transfer's end
};

double or_inner(double throttled, double inner) { return throttled > 0 ? std::min(throttled, inner) : inner; }

TierQueue longer(const TierQueue& a, const TierQueue& b) { return a.bytes < b.bytes ? b : a; }

TierSpeed first_guess(const TierSpeed& inner, const Throttle& throttle) {
  return {std::max(inner.latency_s, throttle.latency_s), or_inner(throttle.read_bytes_per_s, inner.read_bytes_per_s),
          or_inner(throttle.write_bytes_per_s, inner.write_bytes_per_s)};
}

class ThrottledTier final : public TierWrapper {
 public:
  ThrottledTier(std::unique_ptr<Tier> inner, Throttle throttle, const Clock& clock)
      : TierWrapper(std::move(inner), first_guess(inner->speed(), throttle), clock),
        throttle_(std::move(throttle)),
        reads_(throttle_.read_bytes_per_s),
        writes_(throttle_.write_bytes_per_s) {}

  std::string emulated() const override { return throttle_.name; }
  // What it emulates is slow on purpose.
  std::optional<Error> trouble() const override { return inner().trouble(); }
  bool silent() const override { return inner().silent(); }
  TierQueue reads_queued() const override { return longer(inner().reads_queued(), reads_.queued(clock_.now_s())); }
  TierQueue writes_queued() const override { return longer(inner().writes_queued(), writes_.queued(clock_.now_s())); }
  std::string describe() const override { return fmt::format("{}, emulating {}", inner().describe(), throttle_.name); }

 private:
  // Nothing acts at the moment when an operation is due: whoever asks finds it done, or sleeps until then. So it is
  // counted when asked for, or dropped, with the time at which it was due.
  template <class Operation>
  struct Due {
    std::shared_ptr<Operation> operation;
    double start_s = 0;
    double due_s = 0;

    bool ready(const Clock& clock) const { return operation->ready() && clock.now_s() >= due_s; }
    double seconds() const { return std::max(due_s - start_s, operation->seconds()); }
  };

  class Read final : public TierRead {
   public:
    Read(ThrottledTier& tier, Due<TierRead> due, const BlobRange& range, std::uint64_t bytes)
        : tier_(tier), due_(std::move(due)), range_(range), bytes_(bytes) {}
    ~Read() override {
      if (!taken_) tier_.finished_read(due_.start_s, due_.due_s - due_.start_s, dropped(), range_, bytes_);
    }
    bool ready() const override { return due_.ready(tier_.clock_); }
    double seconds() const override { return due_.seconds(); }
    std::uint64_t first_byte() const override { return due_.operation->first_byte(); }
    Result<BlobBytes> take() override {
      taken_ = true;
      Result<BlobBytes> result = due_.operation->take();
      tier_.clock_.sleep_until_s(due_.due_s);
      tier_.finished_read(due_.start_s, seconds(), result, range_);
      return result;
    }

   private:
    ThrottledTier& tier_;
    const Due<TierRead> due_;
    const BlobRange range_;
    const std::uint64_t bytes_;
    bool taken_ = false;
  };

  class Write final : public TierWrite {
   public:
    Write(ThrottledTier& tier, Due<TierWrite> due, std::uint64_t bytes)
        : tier_(tier), due_(std::move(due)), bytes_(bytes) {}
    ~Write() override {
      if (!waited_) tier_.finished_write(due_.start_s, due_.due_s - due_.start_s, bytes_, false, dropped());
    }
    bool ready() const override { return due_.ready(tier_.clock_); }
    double seconds() const override { return due_.seconds(); }
    bool created() const override { return due_.operation->created(); }
    Status wait() override {
      Status status = due_.operation->wait();
      tier_.clock_.sleep_until_s(due_.due_s);
      if (!std::exchange(waited_, true)) {
        tier_.finished_write(due_.start_s, seconds(), bytes_, created(), status);
      }
      return status;
    }

   private:
    ThrottledTier& tier_;
    const Due<TierWrite> due_;
    const std::uint64_t bytes_;
    bool waited_ = false;
  };

  static std::unexpected<Error> dropped() { return fail(ErrorCode::kCancelled, "nobody waited for it"); }

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    const std::uint64_t bytes = range.whole() ? inner().blob_bytes(id) : range.bytes;
    const double due_s = reads_.pass(start_s, bytes) + throttle_.latency_s;
    auto read = range.whole() ? inner().read(id, bytes) : inner().read(id, range);
    return std::make_shared<Read>(*this, Due<TierRead>{std::move(read), start_s, due_s}, range, bytes);
  }

  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    const double due_s = writes_.pass(start_s, stored_bytes(size)) + throttle_.latency_s;
    return std::make_shared<Write>(*this, Due<TierWrite>{inner().write(id, std::move(bytes)), start_s, due_s}, size);
  }

  const Throttle throttle_;
  mutable Pipe reads_;
  mutable Pipe writes_;
};

}  // namespace

std::unique_ptr<Tier> make_throttled_tier(std::unique_ptr<Tier> tier, const Throttle& throttle, const Clock& clock) {
  return std::make_unique<ThrottledTier>(std::move(tier), throttle, clock);
}

Result<Throttle> parse_throttle(std::string_view text) {
  if (const std::size_t comma = text.find(','); comma != std::string_view::npos) {
    SHALE_ASSIGN(const double rate, parse_rate(text.substr(0, comma)));
    SHALE_ASSIGN(const double latency, parse_duration(text.substr(comma + 1)));
    if (!(rate > 0)) return fail(ErrorCode::kInvalidArgument, "throttle '{}': nothing ever comes at that rate", text);
    return Throttle{std::string(text), latency, rate, rate};
  }
  // Round numbers of hardware that people have: sequential bandwidth, latency of one request.
  static const std::array<Throttle, 7> presets = {{
      {"hdd", 8e-3, 160e6, 150e6},
      {"sata-ssd", 150e-6, 530e6, 480e6},
      {"nvme", 90e-6, 3.2e9, 2.5e9},
      {"nfs-1g", 1e-3, 115e6, 110e6},
      {"nfs-10g", 500e-6, 1.1e9, 900e6},
      {"s3", 30e-3, 200e6, 150e6},
      {"s3-far", 120e-3, 60e6, 40e6},
  }};
  std::string names;
  for (const Throttle& preset : presets) {
    if (preset.name == text) return preset;
    names += (names.empty() ? "" : ", ") + preset.name;
  }
  return fail(ErrorCode::kInvalidArgument, "no throttle is called '{}'; there are {}, or write 200MB/s,8ms", text,
              names);
}

}  // namespace shale
