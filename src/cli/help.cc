#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace shale {
namespace {

// The name of an option's value, without the names of the checks that CLI11 appends to it.
std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_positional()) return {};
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

// Without the brackets that CLI11 puts around several values.
std::string default_of(const CLI::Option& option) {
  const std::string text = option.get_default_str();
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

// A configuration file that is there has to be read, and yet nobody has to name it.
bool has_to_be_given(const CLI::Option& option) { return option.get_required() && option.get_default_str().empty(); }

std::string option_row(const CLI::Option& option) {
  const std::string value = value_name(option);
  const std::string name = option.get_name(option.get_positional()) + (value.empty() ? "" : " " + value);
  const std::string fallback = has_to_be_given(option)     ? "required"
                               : option.get_configurable() ? code(default_of(option))
                                                           : "";
  return fmt::format("| {} | {} | {} | {} |\n", code(name), cell(option.get_description()), fallback,
                     code(option.get_envname()));
}

// A command without examples of its own inherits its group's.
bool has_own_footer(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return !command.get_footer().empty() && (!parent || parent->get_footer() != command.get_footer());
}

std::string option_rows(const CLI::App& command) {
  std::string rows;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty() && option != command.get_help_ptr()) rows += option_row(*option);
  }
  return rows;
}

// CLI11 keeps a group of options as a command without a name.
bool is_option_group(const CLI::App& command) { return command.get_name().empty(); }

void write_command(const CLI::App& command, const std::string& path, std::string& out) {
  const std::string about = command.get_description();
  out += fmt::format("\n## {}\n\n{}{}\n", path, about, about.ends_with('.') ? "" : ".");
  const std::vector<const CLI::App*> children = command.get_subcommands([](const CLI::App*) { return true; });
  std::string rows = option_rows(command);
  for (const CLI::App* group : children) {
    if (is_option_group(*group)) rows += option_rows(*group);
  }
  if (!rows.empty()) out += "\n| option | meaning | default | environment |\n| --- | --- | --- | --- |\n" + rows;
  if (has_own_footer(command)) out += "\n```text\n" + command.get_footer() + "\n```\n";
  for (const CLI::App* child : children) {
    if (!is_option_group(*child)) write_command(*child, path + " " + child->get_name(), out);
  }
}

}  // namespace

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string value = value_name(*option);
  return value.empty() ? value : " " + value;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::vector<std::string> notes;
  if (has_to_be_given(*option)) notes.emplace_back("required");
  if (const std::string fallback = default_of(*option); !fallback.empty()) notes.push_back(fallback);
  if (!option->get_envname().empty()) notes.push_back("$" + option->get_envname());
  return option->get_description() + (notes.empty() ? "" : fmt::format(" [{}]", fmt::join(notes, "; ")));
}

std::string reference_markdown(const CLI::App& app) {
  std::string out =
      "# Command line\n\n"
      "Written by `shale --reference`; a test keeps it so. Every command also takes `--help`.\n";
  write_command(app, app.get_name(), out);
  return out;
}

}  // namespace shale
