#include "cli/suggest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "cli/renamed_options.h"

namespace shale {
namespace {

constexpr std::string_view kPrefix = "SHALE_";
// Variables that are read without an option, by shale-lab alone, or by what the program is built and started with.
constexpr auto kOthers =
    std::to_array<const char*>({"SHALE_API_KEY", "SHALE_CONFIG", "SHALE_DATA_DIR", "SHALE_DEPS_DIR", "SHALE_LLAMA_DIR",
                                "SHALE_LLAMA_OPTIONS", "SHALE_MODEL_DIR", "SHALE_PEER", "SHALE_PEERS_DIR",
                                "SHALE_REDIS_PASSWORD", "SHALE_S3_URL", "SHALE_TREE_SITTER_DIR"});

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

void add_variables(const CLI::App& app, std::vector<std::string>& to) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_envname().empty()) to.push_back(option->get_envname());
  }
  for (const CLI::App* command : app.get_subcommands({})) add_variables(*command, to);
}

}  // namespace

const CLI::App& deepest_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest_command(*chosen.front());
}

std::string_view nearest(std::string_view word, std::span<const std::string> among) {
  std::string_view best;
  std::size_t least = word.size() / 3 + 1;
  for (const std::string& each : among) {
    if (const std::size_t away = distance(word, each); away < least) {
      least = away;
      best = each;
    }
  }
  return best;
}

std::string suggestion(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) return {};
  const CLI::App& command = deepest_command(app);
  std::vector<std::string> known;
  if (left.front().starts_with('-')) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const CLI::App* each : command.get_subcommands({})) known.push_back(each->get_name());
  }
  const std::string word = left.front().substr(0, left.front().find('='));
  if (word.starts_with("--")) {
    const std::string renamed = fmt::format("--{}", renamed_option(std::string_view(word).substr(2)));
    if (std::ranges::find(known, renamed) != known.end()) return fmt::format(" (it is called '{}' now)", renamed);
  }
  const std::string_view meant = nearest(word, known);
  return meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant);
}

std::vector<std::string> unknown_variables(const CLI::App& app) {
  std::vector<std::string> known(kOthers.begin(), kOthers.end());
  add_variables(app, known);
  std::vector<std::string> unknown;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with(kPrefix) || std::ranges::find(known, name) != known.end()) continue;
    if (const std::string renamed = renamed_variable(name); !renamed.empty()) {
      unknown.push_back(fmt::format("{} (it is called {} now)", name, renamed));
      continue;
    }
    const std::string_view meant = nearest(name, known);
    unknown.push_back(meant.empty() ? name : fmt::format("{} (did you mean {}?)", name, meant));
  }
  return unknown;
}

}  // namespace shale
