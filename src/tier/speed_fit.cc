#include "tier/speed_fit.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace shale {
namespace {

constexpr double kSmallBytesMax = 1 << 20;
constexpr std::size_t kSamplesKept = 32;
constexpr double kCountsS = 1800;
constexpr double kPeriodSecondsMax = 1.0;
constexpr std::size_t kGatheredMax = 128;
constexpr double kLatencyShareMax = 0.8;  // of an operation's time, in telling whether the next one waited
constexpr double kContrast = 2.0;         // bytes of a pair must differ by this factor to say anything about bandwidth
constexpr double kTellingBytes = 128 << 10;  // what fewer bytes take is latency and noise

double median(std::vector<double> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The value below and above which half of the weight lies.
double weighted_median(std::vector<std::pair<double, double>> values_and_weights) {
  std::sort(values_and_weights.begin(), values_and_weights.end());
  double total = 0;
  for (const auto& [value, weight] : values_and_weights) total += weight;
  double below = 0;
  for (const auto& [value, weight] : values_and_weights) {
    below += weight;
    if (below >= total / 2) return value;
  }
  return values_and_weights.back().first;
}

}  // namespace

void SpeedFit::expect(double latency_s, double bytes_per_s, double now_s) {
  expected_ = {latency_s, bytes_per_s, 0};
  expected_until_s_ = now_s + kCountsS;
  fitted_.reset();
}

void SpeedFit::finished(double start_s, double end_s, std::uint64_t bytes, bool abandoned) {
  assert(in_flight_ > 0);
  --in_flight_;
  if (bytes > 0) ended_.push_back({start_s, end_s, bytes});
  if (in_flight_ == 0) {
    settle(ended_.size());
    if (abandoned) return;
    if (period_) emit_sample();
    period_.reset();
  } else if (ended_.size() >= kGatheredMax) {
    settle(kGatheredMax / 2);  // the others may have been overtaken by one that is still to be reported
  }
}

// The `operations` that started first.
void SpeedFit::settle(std::size_t operations) {
  std::ranges::sort(ended_, {}, [](const Operation& one) { return std::pair(one.start_s, one.end_s); });
  const auto end = ended_.begin() + static_cast<std::ptrdiff_t>(operations);
  std::for_each(ended_.begin(), end, [this](const Operation& operation) { take(operation); });
  ended_.erase(ended_.begin(), end);
}

// While the latency is a guess it may be far too long, and would tear apart what was started together: of the shortest
// operation a fifth at least is taken for its transfer.
double SpeedFit::pipe_free_s() const {
  return period_->end_s - std::min(fit(period_->end_s).latency_s, kLatencyShareMax * period_->shortest_s);
}

void SpeedFit::take(const Operation& operation) {
  const double seconds = operation.end_s - operation.start_s;
  const double free_s = period_ ? pipe_free_s() : operation.start_s;
  if (period_ && operation.start_s > free_s) {
    emit_sample();
    period_.reset();
  }
  if (!period_) period_ = Period{operation.start_s, operation.end_s, 0, seconds, false};
  waited_s_ += std::clamp(free_s - operation.start_s, 0.0, seconds);
  period_->end_s = std::max(period_->end_s, operation.end_s);
  period_->bytes += operation.bytes;
  period_->shortest_s = std::min(period_->shortest_s, seconds);
  if (period_->end_s - period_->start_s > kPeriodSecondsMax) {
    emit_sample();
    period_ = Period{period_->end_s, period_->end_s, 0, period_->shortest_s, true};
  }
}

void SpeedFit::emit_sample() {
  if (period_->bytes == 0) return;
  Sample sample{static_cast<double>(period_->bytes), period_->end_s - period_->start_s, period_->end_s};
  if (period_->continued) sample.seconds += fit(period_->end_s).latency_s;
  Recent& recent = recent_[sample.bytes > kSmallBytesMax];
  if (recent.samples.size() < kSamplesKept) {
    recent.samples.push_back(sample);
  } else {
    recent.samples[recent.next] = sample;
    recent.next = (recent.next + 1) % kSamplesKept;
  }
  ++samples_;
  fitted_.reset();
}

SpeedFit::Line SpeedFit::fit(double now_s) const {
  if (!fitted_ || now_s >= fitted_until_s_) fitted_ = fit_samples(now_s);
  return *fitted_;
}

SpeedFit::Line SpeedFit::fit_samples(double now_s) const {
  const bool expects = now_s < expected_until_s_;
  const Line& guess = expects ? expected_ : first_guess_;
  fitted_until_s_ = expects ? expected_until_s_ : std::numeric_limits<double>::infinity();
  std::vector<Sample> samples, small;
  for (const Recent& recent : recent_) {
    for (const Sample& sample : recent.samples) {
      if (now_s >= sample.end_s + kCountsS) continue;
      fitted_until_s_ = std::min(fitted_until_s_, sample.end_s + kCountsS);
      samples.push_back(sample);
      if (sample.bytes <= kSmallBytesMax) small.push_back(sample);
    }
  }
  if (samples.empty()) return guess;

  std::vector<std::pair<double, double>> slopes;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto [less, more] =
          std::minmax(samples[i], samples[j], [](auto& a, auto& b) { return a.bytes < b.bytes; });
      const double bytes = more.bytes - less.bytes;
      const bool telling = more.bytes >= kTellingBytes && more.bytes >= kContrast * less.bytes;
      if (telling) slopes.emplace_back((more.seconds - less.seconds) / bytes, bytes);
    }
  }
  std::vector<double> seconds, seconds_per_byte, beyond_guess;
  for (const Sample& sample : samples) {
    if (sample.bytes >= kTellingBytes) seconds.push_back(sample.seconds);
    beyond_guess.push_back(sample.seconds - sample.bytes / guess.bytes_per_s);
  }
  if (seconds.empty()) return {std::max(median(std::move(beyond_guess)), 0.0), guess.bytes_per_s, samples_};
  double latency_s = std::min(guess.latency_s, median(seconds) / 2);
  for (const Sample& sample : samples) {
    if (sample.bytes < kTellingBytes) continue;
    seconds_per_byte.push_back(std::max(sample.seconds - latency_s, 0.0) / sample.bytes);
  }
  double slope = median(seconds_per_byte);
  if (!slopes.empty()) {
    if (const double steepness = weighted_median(std::move(slopes)); steepness > 0) {
      std::vector<double> residuals;
      for (const Sample& sample : small.empty() ? samples : small) {  // in large ones, noise drowns the latency
        residuals.push_back(sample.seconds - sample.bytes * steepness);
      }
      slope = steepness;
      latency_s = std::max(median(residuals), 0.0);
    }
  }
  return {latency_s, slope > 0 ? 1 / slope : guess.bytes_per_s, samples_, slope > 0};
}

}  // namespace shale
