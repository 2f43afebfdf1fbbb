// A subcommand: its options, and what it does. One file each: command_NAME.cc, listed in src/commands.cc.
//
// Parsing and doing are apart. `add_NAME` declares the command on `parent`; when it is the one that the user chose, its
// callback leaves what is to be done in `chosen`, and the program does it once the whole command line, environment and
// configuration have been read. An option struct lives as long as the command.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cli/command_line.h"
#include "core/error.h"

namespace shale {

// kInvalidArgument exits 2, kCancelled 130, any other error 1; the message is printed by the program.
using Action = std::function<Status()>;
using AddCommand = void (*)(Command parent, Action& chosen);

// Declares a command that does `action`.
Command add_command(Command parent, Action& chosen, const std::string& name, const std::string& description,
                    Action action);

// Declares a command whose options are an `Options` and which runs `run(options)`. Returns both to add options to.
template <class Options>
std::pair<Command, Options*> add_command(Command parent, Action& chosen, const std::string& name,
                                         const std::string& description, Status (*run)(const Options&)) {
  auto options = std::make_shared<Options>();
  Command command = add_command(parent, chosen, name, description, [options, run] { return run(*options); });
  return {command, options.get()};
}

// Declares every command of the table in src/commands.cc. The program `shale-lab` has all of them, `shale` other
// definitions of add_bench, add_simulate and add_trace (src/commands_elsewhere.cc).
void add_commands(Command app, Action& chosen);

void add_bench(Command parent, Action& chosen);
void add_bench_chaos(Command parent, Action& chosen);
void add_bench_engine(Command parent, Action& chosen);
void add_bench_exact(Command parent, Action& chosen);
void add_bench_kernels(Command parent, Action& chosen);
void add_bench_paging(Command parent, Action& chosen);
void add_bench_paging_quality(Command parent, Action& chosen);
void add_bench_hazard(Command parent, Action& chosen);
void add_bench_placement(Command parent, Action& chosen);
void add_bench_planner(Command parent, Action& chosen);
void add_bench_scoring(Command parent, Action& chosen);
void add_bench_serve(Command parent, Action& chosen);
void add_bench_side_channel(Command parent, Action& chosen);
void add_bench_simulate(Command parent, Action& chosen);
void add_bench_soak(Command parent, Action& chosen);
void add_bench_store(Command parent, Action& chosen);
void add_bench_tiers(Command parent, Action& chosen);
void add_cache(Command parent, Action& chosen);
void add_calibrate(Command parent, Action& chosen);
void add_chat(Command parent, Action& chosen);
void add_compress(Command parent, Action& chosen);
void add_demo(Command parent, Action& chosen);
void add_generate(Command parent, Action& chosen);
void add_model(Command parent, Action& chosen);
void add_profile(Command parent, Action& chosen);
void add_quality(Command parent, Action& chosen);
void add_score(Command parent, Action& chosen);
void add_serve(Command parent, Action& chosen);
void add_simulate(Command parent, Action& chosen);
void add_trace(Command parent, Action& chosen);

}  // namespace shale
