#include "trial/serve_trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/interrupt.h"
#include "core/user_folder.h"

namespace shale {
namespace {

constexpr std::chrono::milliseconds kRestLook(20);
constexpr std::chrono::seconds kRestMax(60);  // for storing what is queued
constexpr std::size_t kOpenFilesMax = 128;

double sum_of(const Metrics& metrics, std::string_view name, std::string_view label) {
  double sum = 0;
  for (const auto& [value, count] : by_label(metrics, name, label)) sum += count;
  return sum;
}

double finished(const Metrics& metrics) { return sum_of(metrics, "vllm:request_success_total", "finished_reason"); }

// What it still does; empty: nothing. A server publishes its metrics from time to time: those from before a request
// that its client left know nothing of it.
std::string unrest(const Metrics& metrics, const MixCounts& counts) {
  for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting", "shale_requests_preempted",
                           "shale_cache_saving_chunks", "shale_pool_bytes{state=\"held\"}"}) {
    if (const double value = value_of(metrics, name); value != 0) return fmt::format("{} is {}", name, value);
  }
  if (const double known = finished(metrics); known < static_cast<double>(counts.finished))
    return fmt::format("it has finished {} requests of {}", known, counts.finished);
  return {};
}

Status check_sums(const ServeChild& server, const Metrics& metrics, const MixCounts& counts) {
  if (const double known = finished(metrics); known != static_cast<double>(counts.finished))
    return fail(ErrorCode::kInternal, "clients finished {} requests, the server {}", counts.finished, known);
  for (const auto& [tier, used] : by_label(metrics, "shale_tier_used_bytes", "tier")) {
    const double room = value_of(metrics, fmt::format("shale_tier_capacity_bytes{{tier=\"{}\"}}", tier));
    if (used < 0 || used > room)
      return fail(ErrorCode::kInternal, "{} bytes of {} are used on tier {}", used, room, tier);
  }
  if (const std::size_t files = open_files(server.pid()); files > kOpenFilesMax)
    return fail(ErrorCode::kInternal, "at rest the server has {} files open, more than {}", files, kOpenFilesMax);
  return {};
}

}  // namespace

void add_trial_options(Command command, TrialOptions& options) {
  command.add_option("--clients", options.clients, "Clients that ask at once")
      .range(1, 64)
      .type_name("N")
      .capture_default_str();
  command.add_option("--prompts", options.prompts, "Different prompts")
      .range(1, 1 << 16)
      .type_name("N")
      .capture_default_str();
  command.add_option("--seed", options.seed, "Seed of prompts and of who asks what")
      .type_name("N")
      .capture_default_str();
  command.add_option("--folder", options.folder, "Where scratch folders are made (default: Shale's cache folder)")
      .existing_directory()
      .type_name("FOLDER");
  add_size(command, "--pool", options.pool_bytes, "Memory for the server's KV pages", "64MiB");
  add_size(command, "--memory-size", options.memory_bytes, "Capacity of its memory tier", "16MiB");
  add_size(command, "--disk-size", options.disk_bytes, "Capacity of its disk tier", "48MiB");
  add_size(command, "--remote-size", options.remote_bytes, "Capacity of its remote tier", "96MiB");
  add_model_options(command, options.model);
}

Result<ScratchFolder> make_scratch(const TrialOptions& options) {
  return ScratchFolder::create(options.folder.empty() ? user_folder("XDG_CACHE_HOME", ".cache")
                                                      : std::filesystem::path(options.folder));
}

std::vector<std::string> trial_tiers(const TrialOptions& options, const TrialFolders& folders, bool memory,
                                     const std::vector<std::string>& shared) {
  std::string tiers = memory ? fmt::format("memory:?size={},", options.memory_bytes) : "";
  tiers += fmt::format("file://{}?size={},dir://{}?size={}", folders.disk.string(), options.disk_bytes,
                       folders.remote.string(), options.remote_bytes);
  for (const std::string& url : shared) tiers += "," + url;
  return {"--tiers", tiers};
}

std::vector<std::string> trial_words(const TrialOptions& options, const TrialFolders& folders, bool memory,
                                     const std::vector<std::string>& shared) {
  const ModelChoice& model = options.model;
  std::vector<std::string> words = trial_tiers(options, folders, memory, shared);
  for (std::string word : {"--model=" + model.model, "--weights=" + model.weights,
                           fmt::format("--threads={}", model.threads), fmt::format("--block-size={}", model.block_size),
                           fmt::format("--pool={}", options.pool_bytes), std::string("--profile=never")}) {
    words.push_back(std::move(word));
  }
  return words;
}

Result<std::vector<MixPrompt>> answered_mix(const TrialOptions& options, const TrialFolders& folders) {
  std::vector<std::string> words = trial_words(options, folders);
  words.push_back("--prefix-cache=off");
  SHALE_ASSIGN(const ServeChild server, ServeChild::start(words, folders.scratch));
  std::vector<MixPrompt> prompts = make_mix(options.seed, options.prompts);
  SHALE_TRY(answer_mix(server.port(), prompts));
  server.stop();
  return prompts;
}

std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream stream(fmt::format("/proc/{}/statm", pid));
  std::uint64_t total = 0, resident = 0;
  stream >> total >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::size_t open_files(pid_t pid) {
  std::error_code error;
  std::size_t files = 0;
  std::filesystem::directory_iterator file(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) ++files;
  return files;
}

Status check_at_rest(const ServeChild& server, const MixCounts& counts) {
  const auto start = std::chrono::steady_clock::now();
  for (;; std::this_thread::sleep_for(kRestLook)) {
    SHALE_TRY(check_interrupt());
    SHALE_ASSIGN(const Metrics metrics, server.metrics());
    const std::string what = unrest(metrics, counts);
    if (what.empty()) return check_sums(server, metrics, counts);
    if (std::chrono::steady_clock::now() - start > kRestMax)
      return fail(ErrorCode::kInternal, "a minute after the last request {}", what);
  }
}

}  // namespace shale
