// A subcommand: its options, and what it does. One file each: command_NAME.cc, listed in src/commands.cc.
//
// Parsing and doing are apart. `add_NAME` declares the command on `parent`; when it is the one that the user chose, its
// callback leaves what is to be done in `chosen`, and the program does it once the whole command line, environment and
// configuration have been read. An option struct lives as long as the command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"

namespace shale {

// kInvalidArgument exits 2, kCancelled 130, any other error 1; the message is printed by the program.
using Action = std::function<Status()>;
using AddCommand = void (*)(CLI::App& parent, Action& chosen);

// Declares a command that does `action`.
CLI::App* add_command(CLI::App& parent, Action& chosen, std::string name, std::string description, Action action);

// Declares a command whose options are an `Options` and which runs `run(options)`. Returns both to add options to.
template <class Options>
std::pair<CLI::App*, Options*> add_command(CLI::App& parent, Action& chosen, std::string name, std::string description,
                                           Status (*run)(const Options&)) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(parent, chosen, std::move(name), std::move(description), [options, run] { return run(*options); });
  return {command, options.get()};
}

// Declares a command that only groups others.
CLI::App* add_group(CLI::App& parent, std::string name, std::string description);

// Declares every command of the table in src/commands.cc, which sees the rooms `demo` and `bench`, too.
void add_commands(CLI::App& app, Action& chosen);

void add_bench(CLI::App& parent, Action& chosen);
void add_bench_chaos(CLI::App& parent, Action& chosen);
void add_bench_engine(CLI::App& parent, Action& chosen);
void add_bench_exact(CLI::App& parent, Action& chosen);
void add_bench_kernels(CLI::App& parent, Action& chosen);
void add_bench_paging(CLI::App& parent, Action& chosen);
void add_bench_paging_quality(CLI::App& parent, Action& chosen);
void add_bench_hazard(CLI::App& parent, Action& chosen);
void add_bench_placement(CLI::App& parent, Action& chosen);
void add_bench_planner(CLI::App& parent, Action& chosen);
void add_bench_scoring(CLI::App& parent, Action& chosen);
void add_bench_serve(CLI::App& parent, Action& chosen);
void add_bench_side_channel(CLI::App& parent, Action& chosen);
void add_bench_simulate(CLI::App& parent, Action& chosen);
void add_bench_soak(CLI::App& parent, Action& chosen);
void add_bench_store(CLI::App& parent, Action& chosen);
void add_bench_tiers(CLI::App& parent, Action& chosen);
void add_cache(CLI::App& parent, Action& chosen);
void add_calibrate(CLI::App& parent, Action& chosen);
void add_chat(CLI::App& parent, Action& chosen);
void add_compress(CLI::App& parent, Action& chosen);
void add_demo(CLI::App& parent, Action& chosen);
void add_generate(CLI::App& parent, Action& chosen);
void add_model(CLI::App& parent, Action& chosen);
void add_profile(CLI::App& parent, Action& chosen);
void add_quality(CLI::App& parent, Action& chosen);
void add_score(CLI::App& parent, Action& chosen);
void add_serve(CLI::App& parent, Action& chosen);
void add_simulate(CLI::App& parent, Action& chosen);
void add_trace(CLI::App& parent, Action& chosen);

}  // namespace shale
