#include "cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/help.h"
#include "cli/numbers.h"
#include "cli/suggest.h"
#include "core/child_process.h"
#include "core/interrupt.h"
#include "core/version.h"
#include "report/output.h"

namespace shale {
namespace {

constexpr int kFailed = 1, kUsage = 2, kInterrupted = 130;

constexpr char kDescription[] =
    "Shale keeps the KV caches of language models in pages and tiers, so that a context\n"
    "that was seen before is loaded instead of computed.";

constexpr char kExamples[] =
    "Examples:\n"
    "  shale demo                                            see what it does, on real documents\n"
    "  shale generate --context report.txt --prompt \"What are the findings?\"\n"
    "  shale chat                                            talk to the default model\n"
    "  shale cache ls                                        what is stored, and where\n"
    "\n"
    "Options are taken from the command line, then from the environment (SHALE_…), then from a\n"
    "TOML file (--config). `shale COMMAND --help` explains each.";

int report(int status, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  print_note("shale: " + message);
  return status;
}

int exit_status(ErrorCode code) {
  if (code == ErrorCode::kInvalidArgument) return kUsage;
  return code == ErrorCode::kCancelled ? kInterrupted : kFailed;
}

// "shale cache rm".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent ? full_name(*parent) + " " + command.get_name() : command.get_name();
}

// Whether the words begin with a command that has only a name here (Command::add_name), or ask for the reference of
// all.
bool is_for_other_program(const CLI::App& app, std::span<const char* const> words) {
  const auto elsewhere = app.get_subcommands([](const CLI::App* command) { return command->get_prefix_command(); });
  if (elsewhere.empty()) return false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--reference") return true;
    if (word == "--config") ++i;
    if (word.starts_with('-')) continue;
    return std::ranges::any_of(elsewhere, [&](const CLI::App* command) { return command->get_name() == word; });
  }
  return false;
}

// Becomes the program that has them, which is installed beside this one. Returns only if that fails.
int become_other_program(const char* const* words) {
  const auto own = own_program();
  if (!own) return report(kFailed, own.error().message);
  const std::filesystem::path program = own->parent_path() / "shale-lab";
  execv(program.c_str(), const_cast<char* const*>(words));
  if (errno != ENOENT) return report(kFailed, fmt::format("cannot run {}: {}", program.string(), std::strerror(errno)));
  return report(kFailed, fmt::format("this command is in a program of its own, and {} is not there: build its target "
                                     "shale-lab, or install it",
                                     program.string()));
}

// What a command does not know goes to the one above it, which does not run: CLI11 would leave it unread. Values of the
// environment and of the configuration are there for whoever runs.
void check_places(const CLI::App& command) {
  for (const CLI::App* below : command.get_subcommands()) {
    if (command.get_parent() && !command.parse_order().empty()) {
      throw CLI::ValidationError(
          command.parse_order().front()->get_name(),
          fmt::format("it was given to `{}`, and `{}` runs", full_name(command), full_name(*below)));
    }
    check_places(*below);
  }
}

int run(int argc, const char* const* argv, void (*add_all)(Command, Action&)) {
  CLI::App app{kDescription, "shale"};
  Action chosen;
  bool reference = false;
  app.set_version_flag("--version", fmt::format("shale {}", kVersion));
  app.formatter(std::make_shared<HelpFormatter>());
  app.add_flag("--reference", reference)->group("")->configurable(false);
  app.require_subcommand(0, 1);
  add_configuration(app);
  add_all(Command(&app), chosen);
  app.footer(kExamples);  // after the commands, which would inherit it
  if (is_for_other_program(app, std::span(argv, argc))) return become_other_program(argv);

  try {
    app.parse(argc, argv);
    check_places(app);
    check_numbers(app);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report(kUsage, fmt::format("{}{} (`{} --help` explains)", error.what(), suggestion(app),
                                      full_name(deepest_command(app))));
  }
  if (reference) {
    fmt::print("{}", reference_markdown(app));
    return 0;
  }
  if (!chosen) {
    fmt::print("{}", app.help());
    return kUsage;
  }
  for (const std::string& name : unknown_variables(app)) {
    print_note("shale: nothing reads the environment variable " + name);
  }
  catch_interrupts();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is a full disk
  const Status status = chosen();
  if (!status) return report(exit_status(status.error().code), status.error().message);
  const int error = std::fflush(stdout) != 0 ? errno : 0;
  if (error != 0) return report(kFailed, fmt::format("cannot write to standard output: {}", std::strerror(error)));
  if (std::ferror(stdout) != 0) return report(kFailed, "not all could be written to standard output");
  return interrupted() ? kInterrupted : 0;
}

}  // namespace

int run_program(int argc, const char* const* argv, void (*add_all)(Command, Action&)) {
  try {
    return run(argc, argv, add_all);
  } catch (const std::exception& error) {
    return report(kFailed, error.what());
  }
}

}  // namespace shale
