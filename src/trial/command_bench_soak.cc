#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "cli/command.h"
#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/quantile.h"
#include "core/units.h"
#include "trial/serve_trial.h"

namespace shale {
namespace {

struct SoakOptions {
  TrialOptions trial;
  double minutes = 60;
};

constexpr char kBenchSoakExamples[] =
    "A server with a small pool and small tiers, so that they are full all the time, is asked by mixed clients "
    "without\n"
    "a pause: exact and not, streamed and not, read slowly, given up midway, malformed, with salts of their own. "
    "Every\n"
    "exact answer must be the one that a server gives that caches nothing, and in the end the sums must come out. It\n"
    "fails where they do not, or where the server grew by more than 2 % after ten minutes.\n"
    "\n"
    "Examples:\n"
    "  shale bench soak --minutes 60 --seed 7";

constexpr std::size_t kWindows = 12;
constexpr double kSettledMinutes = 10;  // after which the server is as large as it gets
constexpr double kGrowthMax = 0.02;

using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point start) { return std::chrono::duration<double>(Time::now() - start).count(); }

struct Window {
  double minute = 0;  // its end
  std::uint64_t requests = 0;
  double ttft_p50_s = 0, ttft_p99_s = 0;
  double resident_mean = 0, resident_max = 0;  // bytes
  std::size_t open_files = 0;
};

Json window_json(const Window& window) {
  return {{"minute", window.minute},        {"requests", window.requests},      {"ttft_p50", window.ttft_p50_s},
          {"ttft_p99", window.ttft_p99_s},  {"resident", window.resident_mean}, {"resident_max", window.resident_max},
          {"open_files", window.open_files}};
}

class Soak {
 public:
  explicit Soak(const SoakOptions& options) : options_(options), seconds_(60 * options.minutes) {}

  // Until its time has passed, or something is not as it must be.
  Status run(const ServeChild& server, std::span<const MixPrompt> prompts) {
    MixClients clients(prompts, options_.trial.clients, options_.trial.seed,
                       {.on_failure = [this](const std::string& what) { note_failure(what); },
                        .on_first = [this](double first_s) { note_first(first_s); }});
    clients.open(server.port());
    const auto start = Time::now();
    Status going;
    for (std::size_t window = 1; window <= kWindows && going; ++window) {
      const double end_s = seconds_ * static_cast<double>(window) / kWindows;
      going = watch(server, clients, start, end_s);
    }
    const bool all_answered = clients.pause();
    counts_ = clients.counts();
    SHALE_TRY(going);
    if (!all_answered) return fail(ErrorCode::kInternal, "a request has no answer after a minute");
    SHALE_TRY(check_at_rest(server, counts_));
    return check_growth();
  }

  const MixCounts& counts() const { return counts_; }
  const std::vector<Window>& windows() const { return windows_; }
  // Windows that began after the server had settled.
  std::span<const Window> settled() const {
    const auto first = static_cast<std::size_t>(std::ceil(kWindows * kSettledMinutes / options_.minutes));
    return std::span(windows_).subspan(std::min(windows_.size(), first));
  }
  // From the first of them to the last.
  double growth() const {
    return settled().empty() ? 0 : windows_.back().resident_mean / settled().front().resident_mean - 1;
  }
  // Between the smallest and the largest of them, of the first.
  double spread() const {
    if (settled().empty()) return 0;
    const auto [low, high] = std::ranges::minmax_element(settled(), {}, &Window::resident_mean);
    return (high->resident_mean - low->resident_mean) / settled().front().resident_mean;
  }

 private:
  void note_failure(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = what;
  }
  void note_first(double first_s) {
    const std::lock_guard lock(mutex_);
    first_s_.push_back(first_s);
  }

  Status watch(const ServeChild& server, const MixClients& clients, Time::time_point start, double end_s) {
    Window window{.minute = end_s / 60};
    std::size_t samples = 0;
    const std::uint64_t before = clients.counts().answered;
    const auto look = std::chrono::duration<double>(std::min(1.0, seconds_ / kWindows / 4));
    while (seconds_since(start) < end_s) {
      SHALE_TRY(check_interrupt());
      if (!server.running()) return std::unexpected(server.metrics().error());
      if (const std::lock_guard lock(mutex_); !failure_.empty()) return fail(ErrorCode::kInternal, "{}", failure_);
      const auto resident = static_cast<double>(resident_bytes(server.pid()));
      window.resident_max = std::max(window.resident_max, resident);
      window.resident_mean += (resident - window.resident_mean) / static_cast<double>(++samples);
      window.open_files = std::max(window.open_files, open_files(server.pid()));
      std::this_thread::sleep_for(look);
    }
    window.requests = clients.counts().answered - before;
    const std::lock_guard lock(mutex_);
    window.ttft_p50_s = quantile(first_s_, 0.5);
    window.ttft_p99_s = quantile(first_s_, 0.99);
    first_s_.clear();
    show(windows_.emplace_back(window));
    return {};
  }

  void show(const Window& window) const {
    if (options_.trial.output.json) {
      print_json(window_json(window));
    } else {
      if (windows_.size() == 1)
        fmt::print("{:>7}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>5}\n", "MINUTE", "REQUESTS", "TTFT P50", "TTFT P99",
                   "RESIDENT", "MOST", "FILES");
      fmt::print("{:>7.1f}  {:>8}  {:>7.0f}ms  {:>7.0f}ms  {:>9}  {:>9}  {:>5}\n", window.minute, window.requests,
                 1e3 * window.ttft_p50_s, 1e3 * window.ttft_p99_s,
                 format_bytes(static_cast<std::uint64_t>(window.resident_mean)),
                 format_bytes(static_cast<std::uint64_t>(window.resident_max)), window.open_files);
    }
    std::fflush(stdout);
  }

  Status check_growth() const {
    if (growth() <= kGrowthMax) return {};
    return fail(ErrorCode::kInternal, "after ten minutes resident memory grew by {:.1f} %, more than {:.0f} %",
                100 * growth(), 100 * kGrowthMax);
  }

  const SoakOptions& options_;
  const double seconds_;
  std::vector<Window> windows_;
  MixCounts counts_;
  std::mutex mutex_;  // guards what follows
  std::string failure_;
  std::vector<double> first_s_;  // of this window
};

void print_summary(const SoakOptions& options, const Soak& soak) {
  const MixCounts& counts = soak.counts();
  if (options.trial.output.json) {
    print_json({{"seed", options.trial.seed},
                {"minutes", options.minutes},
                {"requests", counts.answered},
                {"wrong", counts.wrong},
                {"unanswered", counts.unanswered},
                {"cached_tokens", counts.cached_tokens},
                {"resident_growth", soak.growth()},
                {"resident_spread", soak.spread()}});
  } else {
    fmt::print(
        "seed {}: {} requests as they must be, {} wrong, {} without an answer; resident {:+.2f} % since the "
        "tenth minute, within {:.2f} %\n",
        options.trial.seed, counts.answered, counts.wrong, counts.unanswered, 100 * soak.growth(), 100 * soak.spread());
  }
}

Status run_bench_soak(const SoakOptions& options) {
  SHALE_ASSIGN(const ScratchFolder scratch, make_scratch(options.trial));
  const TrialFolders folders(scratch.path());
  SHALE_ASSIGN(const std::vector<MixPrompt> prompts, answered_mix(options.trial, folders));
  SHALE_ASSIGN(const ServeChild server, ServeChild::start(trial_words(options.trial, folders), folders.scratch));
  Soak soak(options);
  const Status status = soak.run(server, prompts);
  print_summary(options, soak);
  server.stop();
  if (!status) return fail_in(fmt::format("soak --seed {}", options.trial.seed), status.error());
  return {};
}

}  // namespace

void add_bench_soak(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "soak", "Whether a server under mixed requests stays right and stays as large", run_bench_soak);
  command.footer(kBenchSoakExamples);
  command.add_option("--minutes", options->minutes, "How long").range(0.01, 1e5).type_name("N").capture_default_str();
  add_trial_options(command, options->trial);
  add_output_options(command, options->trial.output);
}

}  // namespace shale
