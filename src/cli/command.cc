#include "cli/command.h"

namespace shale {

CLI::App* add_command(CLI::App& parent, Action& chosen, std::string name, std::string description, Action action) {
  CLI::App* command = parent.add_subcommand(std::move(name), std::move(description));
  command->fallthrough();
  command->callback([action = std::move(action), &chosen] { chosen = action; });
  return command;
}

CLI::App* add_group(CLI::App& parent, std::string name, std::string description) {
  CLI::App* group = parent.add_subcommand(std::move(name), std::move(description));
  group->require_subcommand(1)->fallthrough();
  return group;
}

}  // namespace shale
