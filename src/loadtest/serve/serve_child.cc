#include "loadtest/serve/serve_child.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "core/interrupt.h"
#include "core/text_file.h"
#include "loadtest/loopback_http.h"
#include "report/output.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kPoll = 20ms;
constexpr auto kStartMax = 5min;  // a model whose weights are timed first takes its time
constexpr auto kEndMax = 20s;     // until it is killed

std::filesystem::path out_file(const std::filesystem::path& folder) { return folder / "stdout"; }
std::filesystem::path err_file(const std::filesystem::path& folder) { return folder / "stderr"; }

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

// `name{model_name="x",tier="disk"} 12`; lines that begin with # are comments.
Metrics parse_metrics(std::string_view text) {
  constexpr std::string_view kModel = "model_name=\"";
  Metrics metrics;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string_view::npos) continue;
    std::string name(line.substr(0, space));
    if (const std::size_t model = name.find(kModel); model != std::string::npos) {
      std::size_t quote = model + kModel.size();
      while (quote < name.size() && name[quote] != '"') quote += name[quote] == '\\' ? 2 : 1;
      const std::size_t comma = name.compare(quote, 2, "\",") == 0 ? 1 : 0;
      name.erase(model, quote + 1 + comma - model);
      if (name.ends_with("{}")) name.resize(name.size() - 2);
    }
    metrics[name] = std::strtod(std::string(line.substr(space + 1)).c_str(), nullptr);
  }
  return metrics;
}

double value_of(const Metrics& metrics, const std::string& sample) {
  const auto found = metrics.find(sample);
  return found == metrics.end() ? 0 : found->second;
}

std::map<std::string, double> by_label(const Metrics& metrics, std::string_view name, std::string_view label) {
  std::map<std::string, double> found;
  const std::string head = std::string(name) + "{" + std::string(label) + "=\"";
  for (auto at = metrics.lower_bound(head); at != metrics.end() && at->first.starts_with(head); ++at) {
    found[at->first.substr(head.size(), at->first.rfind('"') - head.size())] = at->second;
  }
  return found;
}

Result<ServeChild> ServeChild::start(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  SHALE_ASSIGN(const std::filesystem::path program, own_program());
  std::vector<std::string> command = {program, "serve"};
  command.insert(command.end(), words.begin(), words.end());
  command.insert(command.end(), {"--host=127.0.0.1", "--port=0", "--json"});
  SHALE_ASSIGN(ChildProcess process, ChildProcess::start(command, out_file(folder), err_file(folder)));
  ServeChild child(std::move(process), folder);
  SHALE_TRY(child.wait_until_it_answers());
  return child;
}

Error ServeChild::why_it_ended() const {
  constexpr std::string_view kPrefix = "shale: ", kUsage = "--help` explains)";
  std::string message = last_line(read_file(err_file(folder_)).value_or(""));
  if (message.starts_with(kPrefix)) message.erase(0, kPrefix.size());
  return {message.ends_with(kUsage) ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
          "the server ended: " + (message.empty() ? "it said nothing" : message)};
}

Status ServeChild::wait_until_it_answers() {
  const auto start = SteadyClock::now();
  for (;; std::this_thread::sleep_for(kPoll)) {
    SHALE_TRY(check_interrupt());
    if (!running()) return std::unexpected(why_it_ended());
    if (SteadyClock::now() - start > kStartMax) return fail(ErrorCode::kIo, "the server does not begin to answer");
    const std::string output = read_file(out_file(folder_)).value_or("");
    if (port_ == 0 && output.ends_with('\n')) {
      const Json line = Json::parse(output, nullptr, false);
      const std::string url = line.is_object() ? line.value("url", "") : "";
      port_ = static_cast<std::uint16_t>(std::strtoul(url.substr(url.rfind(':') + 1).c_str(), nullptr, 10));
      if (port_ == 0) return fail(ErrorCode::kInternal, "the server does not say where it listens: {}", output);
    }
    if (port_ != 0 && loopback_request(port_, "GET", "/health", "")) return {};
  }
}

Result<Metrics> ServeChild::metrics() const {
  auto text = loopback_request(port_, "GET", "/metrics", "");
  if (!text) return std::unexpected(running() ? std::move(text).error() : why_it_ended());
  return parse_metrics(*text);
}

void ServeChild::kill() const { process_.send(SIGKILL); }

void ServeChild::stop() const {
  const auto start = SteadyClock::now();
  process_.send(SIGTERM);
  while (running()) {
    if (SteadyClock::now() - start > kEndMax) kill();
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace shale
