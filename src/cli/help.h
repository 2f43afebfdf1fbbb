// How options are explained: `--help` for people at a terminal, and the reference of the command line in Markdown, both
// from the tables that parse them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace shale {

// "--threads N        Threads that compute; 0: one a core [0; $SHALE_THREADS]": the default and the environment
// variable stand behind the description, the names of checks nowhere.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(38); }
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// A section a command, a row an option. docs/reference/cli.md is this text.
std::string reference_markdown(const CLI::App& app);

}  // namespace shale
