#include "cli/reference.h"

#include <fmt/format.h>

namespace shale {
namespace {

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string option_row(const CLI::Option& option) {
  const bool takes_value = option.get_type_size() != 0 && !option.get_type_name().empty();
  const std::string name = option.get_name(option.get_positional()) + (takes_value ? " " + option.get_type_name() : "");
  const std::string fallback = option.get_required()       ? "required"
                               : option.get_configurable() ? code(option.get_default_str())
                                                           : "";
  return fmt::format("| {} | {} | {} | {} |\n", code(name), cell(option.get_description()), fallback,
                     code(option.get_envname()));
}

void write_command(const CLI::App& command, const std::string& path, std::string& out) {
  const auto children = command.get_subcommands([](const CLI::App*) { return true; });
  out += fmt::format("\n## {}\n\n{}.\n", path, command.get_description());
  std::string rows;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty() && option->get_lnames() != std::vector<std::string>{"help"})
      rows += option_row(*option);
  }
  if (!rows.empty()) out += "\n| option | meaning | default | environment |\n| --- | --- | --- | --- |\n" + rows;
  if (!command.get_footer().empty()) out += "\n```text\n" + command.get_footer() + "\n```\n";
  for (const CLI::App* child : children) write_command(*child, path + " " + child->get_name(), out);
}

}  // namespace

std::string reference_markdown(const CLI::App& app) {
  std::string out =
      "# Command line\n\n"
      "Written by `shale --reference`; a test keeps it so. Every command also takes `--help`.\n";
  write_command(app, app.get_name(), out);
  return out;
}

}  // namespace shale
