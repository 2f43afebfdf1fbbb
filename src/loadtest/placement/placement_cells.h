// What `shale bench placement` measured: cells, each a load on a server under one policy, and what their answers are
// worth. One JSON object a line of a file that grows, so that a run goes on where it was stopped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/serve/serve_client.h"
#include "loadtest/serve/serve_metrics.h"
#include "report/output.h"

namespace shale {

struct PlacementAnswer {
  std::size_t context = 0, question = 0;
  double arrival_s = 0;  // planned, from the start of the load
  std::uint32_t prompt_tokens = 0, completion_tokens = 0;
  std::optional<double> ttft_s;  // nothing where it failed
  std::string text;
  std::optional<double> expected_quality;
  std::vector<ServedForm> forms;
};

struct PlacementCell {
  std::string policy;  // "shale, alpha 2"
  double rate = 0, rate_to_prefill = 0;
  std::uint64_t seed = 1;
  double settle_s = 0;  // of rest before its requests, once everything was written
  bool written = true;  // else it was timed while its server still wrote
  std::string program;  // that measured it: version and build
  double itl_p50 = 0, itl_p99 = 0, itl_max = 0;
  std::uint64_t prompt_tokens = 0, computed_tokens = 0;
  std::map<std::string, std::uint64_t> cached_tokens;
  double background_seconds = 0, planning_seconds = 0, profile_seconds = 0, measured_beside_seconds = 0;
  double run_seconds = 0;        // from the first planned arrival to the last end
  std::uint64_t head_bytes = 0;  // CacheStats::head_bytes
  std::vector<PlacementAnswer> answers;
};
PlacementCell cell_of(std::string policy, const ServeRow& row);

// A question about a context over one lossy form of it: agreement with the exact answer, teacher-forced.
struct FormKey {
  std::size_t context = 0, question = 0;
  std::string method;
  double keep = 1;
  auto operator<=>(const FormKey&) const = default;
};

// The file of one setting; cells of another one in it are an error.
class PlacementFile {
 public:
  // Reads what is there. kInvalidArgument where it was measured under another `setting`, kCorrupt with the line's
  // number for what is no row of this file.
  static Result<PlacementFile> open(std::string path, std::string setting);

  // Whether there was nothing, so that what lies beside it is of another run.
  bool is_new() const { return is_new_; }
  const std::vector<PlacementCell>& cells() const { return cells_; }
  // The value measured first, so that rates mean the same when the run goes on.
  std::optional<double> value(const std::string& name) const;
  // kInvalidArgument: it is there, after another rest.
  Result<bool> has(const std::string& policy, double rate_to_prefill, std::uint64_t seed, double settle_s) const;
  const std::map<FormKey, double>& agreement() const { return agreement_; }
  // The exact answer to a question, alone on the engine.
  const std::map<std::pair<std::size_t, std::size_t>, std::string>& references() const { return references_; }

  Status add(const std::string& name, double value);
  Status add(PlacementCell cell);
  Status add(const FormKey& key, double agreement);
  Status add_reference(std::size_t context, std::size_t question, std::string answer);

 private:
  Status append(const Json& row) const;
  void take(const Json& row);

  std::string path_;
  bool is_new_ = false;
  std::map<std::string, double> values_;
  std::vector<PlacementCell> cells_;
  std::map<FormKey, double> agreement_;
  std::map<std::pair<std::size_t, std::size_t>, std::string> references_;
};

}  // namespace shale
