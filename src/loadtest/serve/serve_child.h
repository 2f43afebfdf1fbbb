// `shale serve` as a child: this very program, on a free port of 127.0.0.1, with caches that are its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/child_process.h"
#include "core/error.h"

namespace shale {

// The samples of a /metrics page by name and labels, `model_name` left out: `shale_tier_reads_total{tier="disk"}`.
using Metrics = std::map<std::string, double>;
Metrics parse_metrics(std::string_view text);
// 0 where there is no such sample.
double value_of(const Metrics& metrics, const std::string& sample);
// The samples called `name`, by the value of their label: read bytes by "tier", say.
std::map<std::string, double> by_label(const Metrics& metrics, std::string_view name, std::string_view label);

class ServeChild {
 public:
  // Starts `shale serve` with `words`, and returns once it answers. What it writes goes into files of `folder`, which
  // exists and outlives it. kInvalidArgument with its own words where it refuses an option, kIo where it ends
  // otherwise.
  static Result<ServeChild> start(const std::vector<std::string>& words, const std::filesystem::path& folder);

  std::uint16_t port() const { return port_; }
  pid_t pid() const { return process_.pid(); }
  bool running() const { return process_.running(); }
  Result<Metrics> metrics() const;
  // Ends it at once and returns: its connections break.
  void kill() const;
  // Asks it to end, and to leave the storing of what is queued when that takes more than a moment: nobody will read it.
  // Returns when it has ended.
  void stop() const;

 private:
  ServeChild(ChildProcess process, std::filesystem::path folder)
      : process_(std::move(process)), folder_(std::move(folder)) {}
  Status wait_until_it_answers();
  Error why_it_ended() const;

  ChildProcess process_;
  std::filesystem::path folder_;
  std::uint16_t port_ = 0;
};

}  // namespace shale
