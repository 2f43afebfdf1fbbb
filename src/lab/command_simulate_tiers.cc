#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "cache/planner_choice.h"
#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/units.h"
#include "lab/command_simulate.h"
#include "lab/hardware_option.h"
#include "lab/trace_options.h"
#include "metadata/quality_table.h"
#include "sim/tiered_cache.h"

namespace shale {
namespace {

struct SimulateTiersOptions {
  std::string trace, hardware = "h100-nvme", profiles;
  std::string qualities = "known";  // or "expected"
  TraceChoice reading;
  std::vector<std::string> planners = {"prefill", "lru", "shale"};
  std::optional<std::uint64_t> memory_bytes, disk_bytes, remote_bytes;
  TieredOptions tiered;
  double move_ns_per_byte = 1e9 * kMoveSPerByte;
  BatchingOptions batching{.sequences_max = 0};
  OutputOptions output;
};

constexpr char kSimulateTiersFooter[] =
    "Contexts are the runs of a trace's blocks that are always asked for together. --profiles takes what `shale\n"
    "profile --json` prints, one context a line; each context of the trace takes one of them, so that their spread\n"
    "is the workload's, or with --spread-profiles off the next one. Requests ask what `shale profile --held-out`\n"
    "held out, where profiles have that; with --qualities expected planners know the other questions alone. Without\n"
    "profiles nothing is compressed and only tiers are chosen. With --servers requests queue, and the time to the\n"
    "first token includes waiting. With --max-num-seqs one engine computes them together, step by step, in the\n"
    "order of `shale serve`, answers included; a file for --emulate says what steps take.\n"
    "\n"
    "Examples:\n"
    "  shale simulate tiers --trace conversation_trace.jsonl\n"
    "  shale simulate tiers --trace a.jsonl --emulate laptop --memory-size 1GiB --profiles profiles.jsonl\n"
    "  shale simulate tiers --trace a.jsonl --profiles profiles.jsonl --planner fixed:kivi4,shale";

// A line of `shale profile --json`.
struct MeasuredProfile {
  // What a server knows of a form.
  struct Known {
    double agreement = 0;
    std::uint32_t questions = 0;
  };
  ContextProfile forms;
  std::vector<Known> known;  // by form
  std::optional<ContextKind> kind;
  std::uint32_t tokens = 0;
};

// Mean over the questions that were held out, which are those that requests ask; else over all.
double quality_of(const Json& row) {
  const std::vector<double> held_out = row.value("held_out_agreement", std::vector<double>());
  double sum = 0;
  for (const double agreement : held_out) sum += agreement;
  return held_out.empty() ? row.at("agreement").get<double>() : sum / static_cast<double>(held_out.size());
}

// Throws nlohmann's errors.
MeasuredProfile parse_profile(const std::string& line) {
  const Json object = Json::parse(line);
  const double full_bytes = object.at("full_bytes").get<double>();
  if (!(full_bytes > 0)) throw Json::other_error::create(501, "full_bytes is not above 0", nullptr);
  MeasuredProfile profile;
  profile.kind = kind_named(object.value("kind", ""));
  profile.tokens = object.value("tokens", 0U);
  for (const Json& row : object.at("rows")) {
    const std::string method = row.at("method");
    if (method == "full") continue;
    profile.forms.push_back({.method = method,
                             .keep = row.at("keep"),
                             .bytes_share = row.at("bytes").get<double>() / full_bytes,
                             .quality = quality_of(row),
                             .decode_s_per_full_byte = row.at("decode_seconds").get<double>() / full_bytes});
    profile.known.push_back({.agreement = row.at("agreement"), .questions = row.at("questions")});
  }
  return profile;
}

Result<std::vector<MeasuredProfile>> read_profiles(const std::string& path) {
  std::vector<MeasuredProfile> profiles;
  if (path.empty()) return profiles;
  SHALE_ASSIGN(const std::string text, read_text(path));
  std::istringstream lines(text);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    try {
      profiles.push_back(parse_profile(line));
    } catch (const Json::exception& error) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: not a line of `shale profile --json`: {}", path, number,
                  error.what());
    }
  }
  if (profiles.empty())
    return fail(ErrorCode::kInvalidArgument, "{} holds no profile: write it by `shale profile --json`", path);
  return profiles;
}

// What a server that measured them, and was then asked what was held out, would go by.
Status expect(std::vector<MeasuredProfile>& profiles) {
  QualityTable table;
  const auto each = [&](auto&& visit) -> Status {
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      for (std::size_t at = 0; at < profiles[i].forms.size(); ++at) {
        SHALE_ASSIGN(const Method method, Method::parse(profiles[i].forms[at].method));
        visit(Hash128{.low = i + 1}, method, profiles[i].forms[at], profiles[i].known[at]);
      }
    }
    return {};
  };
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    if (profiles[i].kind) table.describe(Hash128{.low = i + 1}, *profiles[i].kind, profiles[i].tokens);
  }
  using Known = MeasuredProfile::Known;
  SHALE_TRY(each([&](const Hash128& context, const Method& method, const CompressedForm& form, const Known& known) {
    table.record(context, method, form.keep, known.agreement, known.questions);
  }));
  return each([&](const Hash128& context, const Method& method, CompressedForm& form, const Known&) {
    form.expected = table.quality_for(context, method, form.keep)->expected;
  });
}

Json tiers_json(const Trace& trace, const std::string& planner, const TieredOptions& options,
                const TieredResult& result) {
  Json tiers = Json::array();
  for (std::size_t tier = 0; tier < options.hardware.tiers.size(); ++tier) {
    tiers.push_back({{"tier", options.hardware.tiers[tier].name},
                     {"tokens_loaded", result.tokens_loaded[tier]},
                     {"bytes_read", result.bytes_read[tier]},
                     {"bytes_written", result.bytes_written[tier]}});
  }
  Json forms = Json::array();
  for (const auto& [form, tokens] : result.tokens_lossy) {
    forms.push_back({{"method", form.first}, {"keep", form.second}, {"tokens", tokens}});
  }
  return {{"trace", trace.name},
          {"planner", planner},
          {"hardware", options.hardware.name},
          {"alpha", options.alpha},
          {"requests", result.requests},
          {"ttft_p50_seconds", result.ttft.p50},
          {"ttft_p90_seconds", result.ttft.p90},
          {"ttft_p99_seconds", result.ttft.p99},
          {"ttft_mean_seconds", result.ttft_mean_s},
          {"servers", options.servers},
          {"max_num_seqs", options.batching ? options.batching->sequences_max : 0},
          {"pool_bytes", options.batching ? options.batching->pool_bytes : 0},
          {"warm", options.warm_requests},
          {"busy", result.busy},
          {"quality", result.quality},
          {"tokens", result.tokens},
          {"tokens_computed", result.tokens_computed},
          {"tokens_pooled", result.tokens_pooled},
          {"tiers", std::move(tiers)},
          {"forms", std::move(forms)},
          {"seconds", result.seconds}};
}

void print_hardware(const Hardware& hardware) {
  fmt::print("{}: {}; {} of KV a token\n", hardware.name, hardware.source, format_bytes(hardware.kv_bytes_per_token));
  for (const SimulatedTier& tier : hardware.tiers) {
    const bool unlimited = tier.capacity_bytes == ~std::uint64_t{0};
    fmt::print("  {:<7} {:>10}, {}/s, {}: {}\n", tier.name, unlimited ? "unlimited" : format_bytes(tier.capacity_bytes),
               format_bytes(static_cast<std::uint64_t>(tier.read_bytes_per_s)), format_duration(tier.latency_s),
               tier.source);
  }
}

// Planners stand in columns of `width`.
void print_tiers_header(const Hardware& hardware, std::size_t width, bool pool) {
  fmt::print("\n{:<{}}  {:>9}  {:>9}  {:>9}  {:>7}  {:>9}", "PLANNER", width, "TTFT P50", "P90", "P99", "QUALITY",
             "COMPUTED");
  if (pool) fmt::print("  {:>8}", "pool");
  for (const SimulatedTier& tier : hardware.tiers) fmt::print("  {:>8}", tier.name);
  fmt::print("   BYTES MOVED\n");
}

void print_tiers_row(const std::string& planner, std::size_t width, bool pool, const TieredResult& result) {
  const auto share = [&](std::uint64_t tokens) {
    return 100 * static_cast<double>(tokens) / static_cast<double>(std::max<std::uint64_t>(1, result.tokens));
  };
  fmt::print("{:<{}}  {:>9}  {:>9}  {:>9}  {:>7.3f}  {:>7.1f} %", planner, width, format_duration(result.ttft.p50),
             format_duration(result.ttft.p90), format_duration(result.ttft.p99), result.quality,
             share(result.tokens_computed));
  if (pool) fmt::print("  {:>6.1f} %", share(result.tokens_pooled));
  std::uint64_t moved = 0;
  for (std::size_t tier = 0; tier < result.tokens_loaded.size(); ++tier) {
    fmt::print("  {:>6.1f} %", share(result.tokens_loaded[tier]));
    moved += result.bytes_read[tier] + result.bytes_written[tier];
  }
  fmt::print("   {}\n", format_bytes(moved));
}

Status run_simulate_tiers(const SimulateTiersOptions& options) {
  TieredOptions tiered = options.tiered;
  tiered.move_s_per_byte = 1e-9 * options.move_ns_per_byte;
  if (options.batching.sequences_max > 0) tiered.batching = options.batching;
  SHALE_ASSIGN(tiered.hardware, emulated_hardware(options.hardware));
  if (tiered.batching && tiered.hardware.step_s == 0 && tiered.hardware.decode_s_per_sequence == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--max-num-seqs: of {} it is not known what steps take; --emulate a file with step_s and "
                "decode_s_per_sequence",
                tiered.hardware.name);
  }
  if (options.memory_bytes) SHALE_TRY(tiered.hardware.set_capacity("memory", *options.memory_bytes));
  if (options.disk_bytes) SHALE_TRY(tiered.hardware.set_capacity("disk", *options.disk_bytes));
  if (options.remote_bytes) SHALE_TRY(tiered.hardware.set_capacity("remote", *options.remote_bytes));
  SHALE_ASSIGN(std::vector<MeasuredProfile> profiles, read_profiles(options.profiles));
  if (options.qualities == "expected") SHALE_TRY(expect(profiles));
  for (MeasuredProfile& profile : profiles) tiered.profiles.push_back(std::move(profile.forms));
  SHALE_ASSIGN(const TraceOptions reading, to_options(options.reading));
  SHALE_ASSIGN(const NamedTrace named, load_trace_watched(options.trace, reading, options.output));
  std::size_t width = std::string_view("PLANNER").size();
  for (const std::string& planner : options.planners) width = std::max(width, planner.size());
  if (!options.output.json) {
    print_hardware(tiered.hardware);
    print_tiers_header(tiered.hardware, width, tiered.batching.has_value());
  }
  for (const std::string& planner : options.planners) {
    SHALE_ASSIGN(const PlannerChoice choice, parse_planner(planner));
    tiered.planner = choice.planner;
    tiered.fixed_method = choice.method ? choice.method->text() : "";
    tiered.fixed_keep = std::min(choice.keep, choice.read_keep);
    Progress progress(options.output, "simulating " + planner);
    SHALE_ASSIGN(const TieredResult result, simulate_tiers(named.trace, tiered, [&](std::uint64_t requests) {
                   progress(requests, named.trace.requests.size());
                   return !interrupted();
                 }));
    options.output.json ? print_json(tiers_json(named.trace, planner, tiered, result))
                        : print_tiers_row(planner, width, tiered.batching.has_value(), result);
    if (interrupted()) {
      print_note(fmt::format("interrupted after {} of {} requests", result.requests, named.trace.requests.size()));
      break;
    }
  }
  return {};
}

void add_profile_options(Command command, SimulateTiersOptions& options) {
  Option profiles =
      command.add_option("--profiles", options.profiles, "What compressing does to contexts").type_name("FILE");
  command
      .add_option("--qualities", options.qualities,
                  "What planners know of the profiles' qualities: 'known', as they are; 'expected', as a server that "
                  "measured so many questions, drawn toward the other profiles', those of its kind first")
      .one_of({"known", "expected"})
      .capture_default_str()
      .needs(profiles);
  add_switch(command, "--spread-profiles", options.tiered.spread_profiles,
             "Each context of the trace takes any of the profiles; off: one after another, in the order in which the "
             "trace has them first")
      .needs(profiles);
}

}  // namespace

void add_simulate_tiers(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "tiers", "What tiers and compression are worth: first tokens, quality and hits by planner",
      run_simulate_tiers);
  command.footer(kSimulateTiersFooter);
  command.add_option("--trace", options->trace, "Request trace (docs/formats/trace.md); '-' is standard input")
      .type_name("FILE")
      .required();
  add_hardware_option(command, options->hardware);
  add_size(command, "--memory-size", options->memory_bytes, "Capacity of the memory tier; 0: none", "the hardware's");
  add_size(command, "--disk-size", options->disk_bytes, "Capacity of the disk tier; 0: none", "the hardware's");
  add_size(command, "--remote-size", options->remote_bytes, "Capacity of the remote tier; 0: none", "unlimited");
  command.add_option("--planner", options->planners, "Who decides: " + planner_forms())
      .check(known_planner())
      .type_name("PLANNER,...")
      .delimiter(',')
      .capture_default_str();
  add_profile_options(command, *options);
  command.add_option("--alpha", options->tiered.alpha, "Seconds that a unit of quality is worth")
      .type_name("X")
      .capture_default_str();
  command.add_option("--half-life", options->tiered.half_life_s, "Of the frequency of accesses")
      .type_name("SECONDS")
      .capture_default_str();
  add_move_cost(command, options->move_ns_per_byte);
  add_switch(command, "--divide-by-bytes", options->tiered.divide_by_bytes,
             "Planner shale: what loses least utility per byte that it frees is given up; off: what loses least");
  command.add_option("--servers", options->tiered.servers, "That serve one request each at a time; 0: nobody waits")
      .type_name("N")
      .capture_default_str();
  Option together = command
                        .add_option("--max-num-seqs", options->batching.sequences_max,
                                    "Requests that one engine computes together, step by step; 0: as --servers says")
                        .type_name("N")
                        .capture_default_str();
  together.excludes(command.option("--servers"));
  add_size(
      command, "--pool", options->batching.pool_bytes,
      "The engine's own pool, of KV in use and of prefixes for later requests; 0: room for all that runs, no prefixes",
      "0")
      .needs(together);
  command
      .add_option("--warm", options->tiered.warm_requests,
                  "The first requests fill the tiers, so many, and are not counted")
      .type_name("N")
      .capture_default_str();
  command.add_option("--seed", options->tiered.seed, "Seed of the profiles' assignment to contexts")
      .type_name("N")
      .capture_default_str();
  add_trace_options(command, options->reading);
  add_output_options(command, options->output);
}

}  // namespace shale
