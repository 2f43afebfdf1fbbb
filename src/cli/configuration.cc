#include "cli/configuration.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
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
// and lets the file win over the environment. Here a key at the top belongs to every command that has such an option,
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
  void add_section(const toml::table& section, const std::vector<std::string>& parents,
                   std::vector<CLI::ConfigItem>& found) const {
    for (const auto& [key, value] : section) {
      const toml::table* below = value.as_table();
      if (!below) continue;
      std::vector<std::string> path = parents;
      path.emplace_back(key.str());
      add_section(*below, path, found);
    }
    for (const auto& [key, value] : section) {
      if (value.is_table()) continue;
      const CLI::ConfigItem item{parents, std::string(key.str()), texts_of(value)};
      if (!add(app_, item, 0, {}, found)) refuse_unknown(key, parents);
    }
  }

  [[noreturn]] static void refuse_unknown(const toml::key& key, const std::vector<std::string>& parents) {
    const CLI::ConfigItem item{parents, std::string(key.str()), {}};
    const std::string_view renamed = renamed_option(item.name);
    refuse(key.source(),
           fmt::format("no command has the option '{}'; {} (keys are the long option names, sections the commands)",
                       item.fullname(),
                       renamed.empty() ? "correct or remove that line, or put it into its command's section if that is "
                                         "one of shale-lab"
                                       : fmt::format("it is called '{}' now", renamed)));
  }

  // Adds the item for `command` and, once its sections are used up, for all commands below. False when none has it.
  static bool add(const CLI::App& command, const CLI::ConfigItem& item, std::size_t level,
                  std::vector<std::string> parents, std::vector<CLI::ConfigItem>& found) {
    bool known = false;
    const bool here = level == item.parents.size();
    if (here) {
      if (const CLI::Option* option = command.get_option_no_throw("--" + item.name);
          option && option->get_configurable()) {
        known = true;
        if (!set_in_environment(*option)) found.push_back({parents, item.name, item.inputs});
      }
    }
    for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; })) {
      if (!here && child->get_name() != item.parents[level]) continue;
      if (!here && child->get_prefix_command()) return true;  // for another program
      std::vector<std::string> path = parents;
      path.push_back(child->get_name());
      known |= add(*child, item, here ? level : level + 1, std::move(path), found);
    }
    return known;
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
