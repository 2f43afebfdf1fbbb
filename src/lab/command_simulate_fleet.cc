#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cache/planner_choice.h"
#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/units.h"
#include "lab/command_simulate.h"
#include "lab/fleet_prices.h"
#include "lab/hardware_option.h"
#include "lab/trace_options.h"
#include "sim/fleet.h"

namespace shale {
namespace {

struct SimulateFleetOptions {
  std::string trace, hardware = "h100-nvme", prices, planner = "shale";
  TraceChoice reading;
  std::vector<std::uint32_t> engines = {1, 2, 4, 8};
  std::vector<std::string> routers = {"round_robin", "prefix", "events"};
  std::string scheduling = "fcfs";
  std::optional<std::uint64_t> memory_bytes, disk_bytes;
  std::uint64_t network_bytes_per_s = 0, link_bytes_per_s = 0;
  FleetOptions fleet;
  double move_ns_per_byte = 1e9 * kMoveSPerByte;
  OutputOptions output;
};

constexpr char kSimulateFleetFooter[] =
    "Every engine has memory and disk of its own, and computes so many requests at a time (--servers); the lowest "
    "tier\n"
    "is one store that all share (--share off: there is none). With --store-size it evicts what was least recently "
    "put\n"
    "or read. --speed lets the same requests come faster, as more engines serve more users. --prices takes a file of\n"
    "prices (docs/formats/prices.md).\n"
    "\n"
    "Examples:\n"
    "  shale simulate fleet --trace conversation_trace.jsonl --engines 1,4,16 --speed 8\n"
    "  shale simulate fleet --trace a.jsonl --engines 8 --router events --memory-size 20GB --disk-size 0 --network "
    "1GB\n"
    "  shale simulate fleet --trace a.jsonl --engines 8 --share off --prices prices.json --json";

Json fleet_json(const Trace& trace, const SimulateFleetOptions& options, const FleetOptions& fleet,
                const FleetResult& result, std::optional<double> cost) {
  Json tiers = Json::array();
  for (std::size_t tier = 0; tier < fleet.engine.hardware.tiers.size(); ++tier) {
    tiers.push_back({{"tier", fleet.engine.hardware.tiers[tier].name},
                     {"tokens_loaded", result.all.tokens_loaded[tier]},
                     {"bytes_read", result.all.bytes_read[tier]},
                     {"bytes_written", result.all.bytes_written[tier]}});
  }
  return {{"trace", trace.name},
          {"hardware", fleet.engine.hardware.name},
          {"planner", options.planner},
          {"router", kFleetRouters[static_cast<std::size_t>(fleet.router)]},
          {"engines", fleet.engines},
          {"servers", fleet.engine.servers},
          {"scheduling", options.scheduling},
          {"step_tokens", fleet.step_tokens},
          {"shares", fleet.shares},
          {"speed", fleet.speed},
          {"requests", result.all.requests},
          {"ttft_mean_seconds", result.all.ttft_mean_s},
          {"ttft_p50_seconds", result.all.ttft.p50},
          {"ttft_p90_seconds", result.all.ttft.p90},
          {"ttft_p99_seconds", result.all.ttft.p99},
          {"tokens", result.all.tokens},
          {"tokens_computed", result.all.tokens_computed},
          {"tiers", std::move(tiers)},
          {"busy", result.all.busy},
          {"busiest_share", result.busiest_share},
          {"duration_seconds", result.duration_s},
          {"store_size", fleet.store_bytes_max > 0 ? Json(fleet.store_bytes_max) : Json()},
          {"store_bytes", result.store_bytes},
          {"store_evicted_bytes", result.evicted_bytes},
          {"network_bytes", result.network_bytes},
          {"network_transfers", result.transfers},
          {"network_bytes_per_second", result.network_mean_bytes_per_s},
          {"network_peak_bytes_per_second", result.network_peak_bytes_per_s},
          {"network_busy", fleet.network_bytes_per_s > 0 ? Json(result.network_busy) : Json()},
          {"cost_per_million_requests", cost ? Json(*cost) : Json()},
          {"seconds", result.all.seconds}};
}

void print_fleet_header(const FleetOptions& fleet, bool costs) {
  fmt::print("{:>7}  {:<11}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8}", "ENGINES", "ROUTER", "TTFT MEAN", "P50", "P90", "P99",
             "COMPUTED");
  for (const SimulatedTier& tier : fleet.engine.hardware.tiers) fmt::print("  {:>8}", tier.name);
  fmt::print("  {:>6}  {:>12}  {:>12}{}\n", "BUSY", "STORE READS", "PEAK", costs ? "  COST/MILLION" : "");
}

void print_fleet_row(const FleetOptions& fleet, const FleetResult& result, std::optional<double> cost) {
  const TieredResult& all = result.all;
  const auto share = [&](std::uint64_t tokens) {
    return 100 * static_cast<double>(tokens) / static_cast<double>(std::max<std::uint64_t>(1, all.tokens));
  };
  fmt::print("{:>7}  {:<11}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6.1f} %", fleet.engines,
             kFleetRouters[static_cast<std::size_t>(fleet.router)], format_duration(all.ttft_mean_s),
             format_duration(all.ttft.p50), format_duration(all.ttft.p90), format_duration(all.ttft.p99),
             share(all.tokens_computed));
  for (const std::uint64_t tokens : all.tokens_loaded) fmt::print("  {:>6.1f} %", share(tokens));
  fmt::print("  {:>4.0f} %  {:>12}  {:>10}/s", 100 * all.busy, fleet.shares ? format_bytes(all.bytes_read.back()) : "-",
             format_bytes(static_cast<std::uint64_t>(result.network_peak_bytes_per_s)));
  fmt::print("{}\n", cost ? fmt::format("  {:>12.2f}", *cost) : "");
}

Result<FleetOptions> fleet_of(const SimulateFleetOptions& options) {
  FleetOptions fleet = options.fleet;
  fleet.engine.move_s_per_byte = 1e-9 * options.move_ns_per_byte;
  fleet.network_bytes_per_s = static_cast<double>(options.network_bytes_per_s);
  fleet.scheduling = static_cast<EngineScheduling>(std::ranges::find(kEngineSchedulings, options.scheduling) -
                                                   kEngineSchedulings.begin());
  SHALE_ASSIGN(fleet.engine.hardware, emulated_hardware(options.hardware));
  std::vector<SimulatedTier>& tiers = fleet.engine.hardware.tiers;
  if (!fleet.shares && tiers.size() > 1 && tiers.back().capacity_bytes == kUnlimited) tiers.pop_back();
  if (options.memory_bytes) SHALE_TRY(fleet.engine.hardware.set_capacity("memory", *options.memory_bytes));
  if (options.disk_bytes) SHALE_TRY(fleet.engine.hardware.set_capacity("disk", *options.disk_bytes));
  if (fleet.shares && options.link_bytes_per_s > 0 && !tiers.empty()) {
    tiers.back().read_bytes_per_s = static_cast<double>(options.link_bytes_per_s);
  }
  SHALE_ASSIGN(const PlannerChoice planner, parse_planner(options.planner));
  if (planner.method) {
    return fail(ErrorCode::kInvalidArgument, "planner {}: a fleet's contexts are exact; `simulate tiers` compresses",
                options.planner);
  }
  fleet.engine.planner = planner.planner;
  return fleet;
}

Status run_simulate_fleet(const SimulateFleetOptions& options) {
  SHALE_ASSIGN(FleetOptions fleet, fleet_of(options));
  std::optional<FleetPrices> prices;
  if (!options.prices.empty()) {
    SHALE_ASSIGN(prices, read_prices(options.prices));
    SHALE_TRY(check_prices(*prices, fleet.engine.hardware));
  }
  SHALE_ASSIGN(const TraceOptions reading, to_options(options.reading));
  SHALE_ASSIGN(const NamedTrace named, load_trace_watched(options.trace, reading, options.output));
  if (!options.output.json) print_fleet_header(fleet, prices.has_value());
  for (const std::uint32_t engines : options.engines) {
    for (const std::string& router : options.routers) {
      fleet.engines = engines;
      fleet.router = static_cast<FleetRouter>(std::ranges::find(kFleetRouters, router) - kFleetRouters.begin());
      Progress progress(options.output, fmt::format("simulating {} engines, {}", engines, router));
      SHALE_ASSIGN(const FleetResult result, simulate_fleet(named.trace, fleet, [&](std::uint64_t requests) {
                     progress(requests, named.trace.requests.size());
                     return !interrupted();
                   }));
      SHALE_TRY(check_interrupt());
      const auto cost = prices ? std::optional(cost_per_million(*prices, fleet, result)) : std::nullopt;
      options.output.json ? print_json(fleet_json(named.trace, options, fleet, result, cost))
                          : print_fleet_row(fleet, result, cost);
    }
  }
  return {};
}

// Which requests an engine computes, and when it turns to others.
void add_serving_options(Command& command, SimulateFleetOptions& options) {
  command
      .add_option("--servers", options.fleet.engine.servers,
                  "Requests that an engine computes at a time; 0: nobody waits")
      .type_name("N")
      .capture_default_str();
  command
      .add_option("--scheduling", options.scheduling,
                  "Which ones: fcfs, in order of arrival; srpt, after every step those with the shortest remaining "
                  "time, less a quarter of their wait, "
                  "as shale serve")
      .one_of(kEngineSchedulings)
      .type_name("NAME")
      .capture_default_str();
  command.add_option("--step-tokens", options.fleet.step_tokens, "Tokens of a prompt that a step computes, for srpt")
      .range(1u, 1u << 20)
      .type_name("N")
      .capture_default_str();
}

}  // namespace

void add_simulate_fleet(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "fleet", "Several engines behind a router, over one store: first tokens, hits, traffic and cost",
      run_simulate_fleet);
  command.footer(kSimulateFleetFooter);
  options->fleet.engine.servers = 1;
  command.add_option("--trace", options->trace, "Request trace (docs/formats/trace.md); '-' is standard input")
      .type_name("FILE")
      .required();
  command.add_option("--engines", options->engines, "How many there are")
      .range(1u, kEnginesMax)
      .type_name("N[,N]")
      .delimiter(',')
      .capture_default_str();
  command.add_option("--router", options->routers, "Which engine gets a request: round_robin, prefix, overlap, events")
      .one_of(kFleetRouters)
      .type_name("NAME[,NAME]")
      .delimiter(',')
      .capture_default_str();
  add_hardware_option(command, options->hardware);
  add_size(command, "--memory-size", options->memory_bytes, "Capacity of an engine's memory tier; 0: none",
           "the hardware's");
  add_size(command, "--disk-size", options->disk_bytes, "Capacity of an engine's disk tier; 0: none", "the hardware's");
  add_switch(command, "--share", options->fleet.shares,
             "The lowest tier is one store that all engines share; off: there is none, and an unlimited tier below an "
             "engine's others is left out");
  add_size(command, "--store-size", options->fleet.store_bytes_max,
           "Capacity of the store, which evicts what was least recently put or read; 0: without bound", "0");
  add_size(command, "--link", options->link_bytes_per_s, "Bytes a second between an engine and the store",
           "the hardware's lowest tier's");
  add_size(command, "--network", options->network_bytes_per_s,
           "Bytes a second of all transfers from and to the store together; 0: each engine's link alone limits", "0");
  add_serving_options(command, *options);
  command.add_option("--speed", options->fleet.speed, "Requests arrive so many times as fast as the trace says")
      .type_name("X")
      .capture_default_str();
  command.add_option("--planner", options->planner, "What decides where contexts lie: prefill, lru, lfu, shale")
      .check(known_planner())
      .type_name("PLANNER")
      .capture_default_str();
  command.add_option("--alpha", options->fleet.engine.alpha, "Seconds that a unit of quality is worth")
      .type_name("X")
      .capture_default_str();
  command.add_option("--half-life", options->fleet.engine.half_life_s, "Of the frequency of accesses")
      .type_name("SECONDS")
      .capture_default_str();
  add_move_cost(command, options->move_ns_per_byte);
  command.add_option("--prices", options->prices, "What things cost (docs/formats/prices.md)").type_name("FILE");
  add_trace_options(command, options->reading);
  add_output_options(command, options->output);
}

}  // namespace shale
