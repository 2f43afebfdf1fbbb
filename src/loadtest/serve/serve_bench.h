// Real servers under load, one after another: `shale serve` on a free port of 127.0.0.1 with caches of its own, and the
// same requests over HTTP. What `shale bench serve` and `shale bench placement` stand on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/serve_options.h"
#include "core/child_process.h"
#include "loadtest/serve/serve_child.h"
#include "loadtest/serve/serve_load.h"
#include "loadtest/serve/serve_metrics.h"
#include "report/output.h"

namespace shale {

// A server with --prefix-cache off, beside the planners.
inline constexpr char kNoReuse[] = "no-reuse";

struct ServeBenchOptions {
  // A number and an x: a multiple of what can be computed with nothing reused; else requests a second.
  struct Rate {
    double value = 1;
    bool to_prefill = false;
  };

  ServeOptions serve;
  std::vector<Option> passed_on;     // of serve's, as they are
  std::optional<Option> max_tokens;  // one of these
  std::vector<std::string> files;
  std::vector<Rate> rates;
  std::size_t contexts_max = 0, requests = 100, seeds = 1;
  std::uint32_t context_tokens = 0;
  std::uint64_t seed = 1;
  std::size_t turns = 1;  // of a chat
  double turn_gap_s = 5;  // mean pause before a later one
  double zipf = 1;
  std::string arrivals = "poisson", folder, remote;
  bool exact = false;
  bool openings = false;   // of contexts are held back (serve_load.h)
  bool to_the_end = true;  // answers are as long as they may be, so that every server does the same work
  OutputOptions output;
};

// All of them, and those of serve but for `own` and what names one server: these the benchmark decides.
void add_serve_bench_options(Command command, ServeBenchOptions& options, const std::vector<const char*>& own);

class ServeBench {
 public:
  // Options and tokenizer outlive it.
  ServeBench(const ServeBenchOptions& options, const Tokenizer& tokenizer) : options_(options), tokenizer_(tokenizer) {}

  // kInvalidArgument where there is nothing to ask about.
  Status read_contexts();
  // Reads contexts, where they were not read yet, and trace. kInvalidArgument where there is nothing to measure, or no
  // rate.
  Status prepare();
  // What can be computed one after another, answers of one token, with nothing reused.
  struct Capacity {
    double requests_per_s = 0, tokens_per_s = 0;
  };
  Result<Capacity> measure_capacity() const;
  // What rates are multiples of.
  void use(const Capacity& capacity) { capacity_ = capacity; }

  const std::vector<LoadContext>& contexts() const { return contexts_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  std::string about() const;
  std::vector<double> rates() const;  // requests a second

  // One server, and where it keeps what.
  struct Bed {
    ScratchFolder folder;
    std::optional<ScratchFolder> remote;
    ServeChild server;

    std::filesystem::path cache_dir() const { return folder.path() / "kv"; }
  };
  // `more`: further options. `metadata store`: a copy of that file is its first; empty: none.
  Result<Bed> start(const std::string& planner, const std::vector<std::string>& more = {},
                    const std::filesystem::path& metadata_store = {}) const;
  // A load on a server that was started so, and what its metrics grew by.
  Result<ServeRow> run(const Bed& bed, const std::string& planner, double rate, std::uint64_t seed) const;
  // Asks one after another, answers of a token.
  Result<std::vector<ServedAnswer>> ask(const Bed& bed, std::vector<LoadRequest> requests, const char* what) const;

 private:
  ServeLoadOptions load_options(std::uint64_t seed) const;
  Result<std::vector<LoadRequest>> load_of(std::uint64_t seed) const;
  std::uint32_t answer_tokens_max() const;
  // Of the last of `turns`, a chat's so far, whose others were answered so. Thread-safe.
  std::string body_of(std::span<const LoadRequest> turns, const std::vector<std::string>& answers) const;

  const ServeBenchOptions& options_;
  const Tokenizer& tokenizer_;
  std::vector<LoadContext> contexts_;
  std::vector<TraceArrival> trace_;
  Capacity capacity_;
};

}  // namespace shale
