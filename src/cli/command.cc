#include "cli/command.h"

namespace shale {

Command add_command(Command parent, Action& chosen, const std::string& name, const std::string& description,
                    Action action) {
  return parent.add_command(name, description, [action = std::move(action), &chosen] { chosen = action; });
}

}  // namespace shale
