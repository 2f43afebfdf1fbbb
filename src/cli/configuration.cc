#include "cli/configuration.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/renamed_options.h"
#include "core/user_folder.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace shale {
namespace {

bool set_in_environment(const CLI::Option& option) {
  if (option.get_envname().empty()) return false;
  const char* value = std::getenv(option.get_envname().c_str());
  return value && *value;
}

// Commands of shale-lab (src/commands_elsewhere.cc). The file means the same to both programs, one of which knows no
// more of these than their names.
constexpr auto kLaboratory = std::to_array<std::string_view>({"bench", "simulate", "trace"});

using Path = std::vector<std::string>;  // the names of a command and of those above it: {"cache", "verify"}

Path below(Path path, std::string_view name) {
  path.emplace_back(name);
  return path;
}

std::vector<const CLI::App*> commands_below(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App* each) { return !each->get_name().empty(); });  // no option groups
}

// One of another program stands for all that follows its name. Null: there is none.
const CLI::App* find_command(const CLI::App& app, const Path& path) {
  const CLI::App* command = &app;
  for (const std::string& name : path) {
    if (command->get_prefix_command()) return command;
    const auto commands = commands_below(*command);
    const auto found = std::ranges::find(commands, name, [](const CLI::App* each) { return each->get_name(); });
    if (found == commands.end()) return nullptr;
    command = *found;
  }
  return command;
}

struct Holder {
  Path command;
  const CLI::Option* option;
};

// The command, where it has the option, and all below it. The program's own options are no keys.
void add_holders(const CLI::App& command, const std::string& option, const Path& path, std::vector<Holder>& to) {
  const CLI::Option* found = command.get_option_no_throw("--" + option);
  if (found && found->get_configurable() && !path.empty()) to.push_back({path, found});
  for (const CLI::App* each : commands_below(command)) add_holders(*each, option, below(path, each->get_name()), to);
}

// Of those that have what a key at the top names. Commands share an option where the environment has it, too; one of
// the same name that is not in the environment means something else then, and is set by its command's section alone.
void keep_shared(std::vector<Holder>& holders) {
  const auto everyday = [](const Holder& holder) {
    return std::ranges::find(kLaboratory, holder.command.front()) == kLaboratory.end();
  };
  const auto named = [](const Holder& holder) { return !holder.option->get_envname().empty(); };
  if (std::ranges::none_of(holders, everyday)) return holders.clear();
  if (std::ranges::any_of(holders, [&](const Holder& each) { return everyday(each) && named(each); })) {
    std::erase_if(holders, [&](const Holder& each) { return !named(each); });
  }
}

[[noreturn]] void refuse(const toml::source_region& source, std::string_view fault) {
  throw CLI::ConfigError(
      fmt::format("configuration, line {}, column {}: {}", source.begin.line, source.begin.column, fault));
}

// As it would be written on the command line.
std::string text_of(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* number = value.as_floating_point()) return fmt::format("{:#}", number->get());
  if (const auto* flag = value.as_boolean()) return flag->get() ? "true" : "false";
  refuse(value.source(), "an option takes a string, a number, true or false, or a list of these");
}

std::vector<std::string> texts_of(const toml::node& value) {
  const toml::array* list = value.as_array();
  if (!list) return {text_of(value)};
  std::vector<std::string> texts;
  for (const toml::node& each : *list) texts.push_back(text_of(each));
  return texts;
}

// CLI11's own reader knows neither escapes nor a '#' within quotes, takes a key at the top as an option of the program,
// and lets the file win over the environment. Here a key at the top belongs to every command that shares the option,
// and the environment wins.
class SharedConfiguration final : public CLI::ConfigTOML {
 public:
  explicit SharedConfiguration(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const toml::parse_result file = toml::parse(input);
    if (!file) refuse(file.error().source(), file.error().description());
    std::vector<CLI::ConfigItem> found;
    add_section(file.table(), {}, found);
    return found;
  }

 private:
  // The sections come first: CLI11 keeps what it is given first, and a command's section says more than what is above
  // it.
  void add_section(const toml::table& section, const Path& path, std::vector<CLI::ConfigItem>& found) const {
    for (const auto& [key, value] : section) {
      if (const toml::table* inner = value.as_table()) add_section(*inner, below(path, key.str()), found);
    }
    for (const auto& [key, value] : section) {
      if (!value.is_table()) add_key(path, key, value, found);
    }
  }

  // An item for each command that it holds for.
  void add_key(const Path& path, const toml::key& key, const toml::node& value,
               std::vector<CLI::ConfigItem>& found) const {
    const CLI::ConfigItem item{path, std::string(key.str()), texts_of(value)};
    const CLI::App* command = find_command(app_, path);
    if (command && command->get_prefix_command()) return;
    std::vector<Holder> holders;
    if (command) add_holders(*command, item.name, path, holders);
    if (path.empty()) keep_shared(holders);
    if (holders.empty()) refuse_unknown(key, item);
    for (const Holder& holder : holders) {
      if (!set_in_environment(*holder.option)) found.push_back({holder.command, item.name, item.inputs});
    }
  }

  [[noreturn]] static void refuse_unknown(const toml::key& key, const CLI::ConfigItem& item) {
    const std::string_view renamed = renamed_option(item.name);
    refuse(key.source(),
           fmt::format("no command has the option '{}'; {} (keys are the long option names, sections the commands)",
                       item.fullname(),
                       renamed.empty() ? "correct or remove that line, or put it into its command's section if that is "
                                         "one of shale-lab"
                                       : fmt::format("it is called '{}' now", renamed)));
  }

  const CLI::App& app_;
};

}  // namespace

void add_configuration(CLI::App& app) {
  const char* named = std::getenv("SHALE_CONFIG");  // CLI11 reads the file before the environment
  const bool is_named = named && *named;
  const auto file = is_named ? std::filesystem::path(named) : user_folder("XDG_CONFIG_HOME", ".config") / "config.toml";
  // CLI11 passes over a file that it cannot read unless the option is required, which one that was read satisfies.
  std::error_code error;
  const bool there = std::filesystem::exists(file, error);  // false and no error where it is not
  const bool required = is_named || there || error;
  app.set_config("--config", file.string(), "TOML file with options; read where it exists", required)
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.config_formatter(std::make_shared<SharedConfiguration>(app));
}

}  // namespace shale
