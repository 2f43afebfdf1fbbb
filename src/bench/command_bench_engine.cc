#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "bench/bench_machine.h"
#include "bench/engine_speed.h"
#include "bench/peers/llama_peer.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/quantile.h"
#include "core/user_folder.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

using Kind = SpeedTest::Kind;

struct BenchEngineOptions {
  ModelChoice model;
  OutputOptions output;
  std::string peer;
  std::vector<std::string> peer_models, peer_weights, only;
  std::uint32_t rounds = 3, beside = 0;
  bool tiny = false;
};

// Threads that want a core all the time, as another program's would.
class Neighbours {
 public:
  explicit Neighbours(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      threads_.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

constexpr char kBenchEngineExamples[] =
    "`exact` decodes as for requests that demand `exact`: reproducibly, in the weights of a single token.\n"
    "The peer is the better of its flash attention on and off, in each test. Its runs and ours take turns; the\n"
    "result is the median over rounds. A setting of the peer that was a tenth slower in the first round is not\n"
    "run again.\n"
    "\n"
    "Examples:\n"
    "  shale bench engine --json\n"
    "  shale bench engine --kv-cache-dtype int8 --tests decode\n"
    "  shale bench engine --tests prefill,decode --beside 1\n"
    "  shale bench engine --peer ~/llama.cpp/build/bin --peer-weights Q4_0 --peer-weights BF16";

constexpr std::array<SpeedTest, 8> kTests = {{{Kind::kPrefill, 512, 0, 1},
                                              {Kind::kPrefill, 4096, 0, 1},
                                              {Kind::kDecode, 32, 512, 1},
                                              {Kind::kDecode, 32, 4096, 1},
                                              {Kind::kDecode, 32, 8000, 1},
                                              {Kind::kExact, 32, 512, 1},
                                              {Kind::kExact, 32, 4096, 1},
                                              {Kind::kBatch, 32, 512, 16}}};
constexpr std::array<SpeedTest, 4> kTinyTests = {
    {{Kind::kPrefill, 32, 0, 1}, {Kind::kDecode, 4, 32, 1}, {Kind::kExact, 4, 32, 1}, {Kind::kBatch, 4, 16, 2}}};
constexpr std::array<std::string_view, 4> kNames = {"prefill", "decode", "exact", "batch"};  // of kinds

constexpr double kHopeless = 0.9;  // of the best in the first round

std::string_view name(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

// How the peer runs: which file, flash attention or not.
struct PeerSetting {
  std::filesystem::path model;
  bool own_type = false;  // another type than ours
  bool flash = false;
  bool operator<(const PeerSetting& other) const { return std::tie(model, flash) < std::tie(other.model, other.flash); }
};

struct Measured {
  SpeedTest test;
  std::vector<double> ours;
  std::vector<double> halves;  // over pages of fp16, where ours are not
  std::map<PeerSetting, std::vector<double>> peers;

  // The fastest setting among those with our file, or among all.
  std::pair<const PeerSetting*, double> best_peer(bool own_types) const {
    std::pair<const PeerSetting*, double> best = {nullptr, 0};
    for (const auto& [setting, speeds] : peers) {
      if ((own_types || !setting.own_type) && quantile(speeds, 0.5) > best.second)
        best = {&setting, quantile(speeds, 0.5)};
    }
    return best;
  }
};

class EngineBench {
 public:
  // `halves`: over pages of fp16, to compare with; or null.
  EngineBench(const BenchEngineOptions& options, Model& model, EngineSpeed& speed, EngineSpeed* halves)
      : options_(options), model_(model), speed_(speed), halves_(halves) {}

  Status set_peer(const std::filesystem::path& model_file, const std::filesystem::path& scratch) {
    SHALE_ASSIGN(peer_, LlamaPeer::open(options_.peer));
    std::vector<std::filesystem::path> files = {model_file};
    for (const std::string& type : options_.peer_weights) {
      SHALE_ASSIGN(files.emplace_back(), peer_->requantize(model_file, type, scratch));
    }
    for (const std::string& path : options_.peer_models) files.emplace_back(path);
    for (const auto& file : files) {
      for (const bool flash : {false, true}) settings_.push_back({file, file != model_file, flash});
    }
    return {};
  }

  Status measure(Measured& measured, Progress& progress, std::size_t done, std::size_t total) {
    for (std::uint32_t round = 0; round < options_.rounds; ++round) {
      progress(done * options_.rounds + round, total * options_.rounds);
      SHALE_TRY(run_once(measured));
    }
    return {};
  }

  Json row(const Measured& measured, const Machine& machine) const {
    const double ours = quantile(measured.ours, 0.5);
    const auto [setting, theirs] = measured.best_peer(false);
    Json json = {{"test", name(measured.test.kind)},
                 {"tokens", measured.test.tokens},
                 {"depth", measured.test.depth},
                 {"sequences", measured.test.sequences},
                 {"threads", model_.executor().threads()},
                 {"tokens_per_second", ours},
                 {"peer_tokens_per_second", setting ? Json(theirs) : Json()},
                 {"ratio", setting ? Json(ours / theirs) : Json()},
                 {"peer_flash_attention", setting ? Json(setting->flash) : Json()}};
    if (const auto [best, speed] = measured.best_peer(true); best && settings_.size() > 2) {
      json["best_peer_tokens_per_second"] = speed;
      json["best_ratio"] = ours / speed;
      json["best_peer_model"] = best->model.filename().string();
    }
    if (halves_) {
      json["fp16_tokens_per_second"] = quantile(measured.halves, 0.5);
      json["ratio_to_fp16"] = ours / quantile(measured.halves, 0.5);
    }
    json["beside"] = options_.beside;
    json["kv_cache_dtype"] = options_.model.kv_cache_dtype;
    json["rounds"] = measured.ours.size();
    json["model"] = model_.info().name;
    json["weights"] = {{"prefill", model_.info().prefill_weights}, {"decode", model_.info().decode_weights}};
    json["machine"] = machine.json();
    return json;
  }

 private:
  Status run_once(Measured& measured) {
    SHALE_ASSIGN(const double ours, speed_.measure(measured.test));
    measured.ours.push_back(ours);
    if (halves_) {
      SHALE_ASSIGN(const double halves, halves_->measure(measured.test));
      measured.halves.push_back(halves);
    }
    for (const PeerSetting& setting : settings_) {
      std::vector<double>& speeds = measured.peers[setting];
      if (speeds.size() == 1 && speeds[0] < kHopeless * measured.best_peer(setting.own_type).second) continue;
      SHALE_ASSIGN(const double theirs,
                   peer_->measure(measured.test, setting.model, static_cast<std::uint32_t>(model_.executor().threads()),
                                  setting.flash));
      speeds.push_back(theirs);
    }
    return {};
  }

  const BenchEngineOptions& options_;
  Model& model_;
  EngineSpeed& speed_;
  EngineSpeed* halves_;
  std::optional<LlamaPeer> peer_;
  std::vector<PeerSetting> settings_;
};

// The tests asked for that fit the model's context.
std::vector<SpeedTest> choose_tests(const BenchEngineOptions& options, const Model& model) {
  std::vector<SpeedTest> tests;
  for (const SpeedTest& test :
       options.tiny ? std::span<const SpeedTest>(kTinyTests) : std::span<const SpeedTest>(kTests)) {
    const bool wanted = options.only.empty() || std::ranges::find(options.only, name(test.kind)) != options.only.end();
    if (wanted && test.depth + test.tokens <= model.info().context_max) tests.push_back(test);
  }
  return tests;
}

void print_row(const Json& row) {
  const bool peer = !row["ratio"].is_null();
  fmt::print("{:<8} {:>5} tokens at {:>5}, {:>2} together: {:>8.1f} tokens/s", row["test"].get<std::string>(),
             row["tokens"].get<int>(), row["depth"].get<int>(), row["sequences"].get<int>(),
             row["tokens_per_second"].get<double>());
  if (peer)
    fmt::print("; peer {:>8.1f}: {:.2f}x", row["peer_tokens_per_second"].get<double>(), row["ratio"].get<double>());
  if (row.contains("best_ratio")) {
    fmt::print("; its best {:>8.1f} ({}): {:.2f}x", row["best_peer_tokens_per_second"].get<double>(),
               row["best_peer_model"].get<std::string>(), row["best_ratio"].get<double>());
  }
  if (row.contains("ratio_to_fp16")) {
    fmt::print("; over fp16 {:>8.1f}: {:.2f}x", row["fp16_tokens_per_second"].get<double>(),
               row["ratio_to_fp16"].get<double>());
  }
  fmt::print("\n");
  std::fflush(stdout);
}

Status run_bench_engine(const BenchEngineOptions& options) {
  SHALE_ASSIGN(const auto file, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto model, open_model(options.model));
  const std::vector<SpeedTest> tests = choose_tests(options, *model);
  const PageElement element = model->page_shape().element;
  SHALE_ASSIGN(EngineSpeed speed, EngineSpeed::create(*model, element, tests));
  std::optional<EngineSpeed> halves;
  if (element != PageElement::kHalf) {
    SHALE_ASSIGN(halves, EngineSpeed::create(*model, PageElement::kHalf, tests));
  }
  SHALE_ASSIGN(const ScratchFolder scratch, ScratchFolder::create(user_folder("XDG_CACHE_HOME", ".cache")));

  EngineBench bench(options, *model, speed, halves ? &*halves : nullptr);
  if (!options.peer.empty()) SHALE_TRY(bench.set_peer(file, scratch.path()));
  const Machine machine = measure_machine();
  if (!options.output.json) {
    fmt::print("{}\n{}: prefill {}; decode {}\n", machine.text(), model->info().name, model->info().prefill_weights,
               model->info().decode_weights);
  }
  Progress progress(options.output, "measuring");
  const Neighbours neighbours(options.beside);
  for (std::size_t test = 0; test < tests.size(); ++test) {
    Measured measured{tests[test], {}, {}, {}};
    SHALE_TRY(bench.measure(measured, progress, test, tests.size()));
    const Json row = bench.row(measured, machine);
    options.output.json ? print_json(row) : print_row(row);
  }
  return {};
}

}  // namespace

void add_bench_engine(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "engine", "Tokens per second: prefill, decode and batches, beside llama.cpp's", run_bench_engine);
  command.footer(kBenchEngineExamples);
  command.add_option("--peer", options->peer, "Folder with llama-bench and llama-batched-bench to compare with")
      .envname("SHALE_PEER")
      .type_name("FOLDER");
  command
      .add_option("--peer-weights", options->peer_weights,
                  "Let the peer also run the model in this type; may be given again")
      .type_name("TYPE")
      .allow_extra_args(false);
  command
      .add_option("--peer-model", options->peer_models,
                  "Let the peer also run this file of the same model; may be given again")
      .type_name("FILE")
      .existing_file()
      .allow_extra_args(false);
  command.add_option("--tests", options->only, fmt::format("Only these: {}", fmt::join(kNames, ", ")))
      .one_of(kNames)
      .delimiter(',')
      .type_name("TEST,...");
  command.add_option("--rounds", options->rounds, "Times that each test runs")
      .range(1, 100)
      .type_name("N")
      .capture_default_str();
  command.add_option("--beside", options->beside, "Beside so many busy threads, as another program would have")
      .range(0, 1024)
      .type_name("N")
      .capture_default_str();
  command.add_flag("--tiny", options->tiny, "A few tokens, for a second: to see that it works");
  add_model_options(command, options->model);
  add_kv_cache_dtype_option(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
