#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shale {

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Option& Option::description(const std::string& text) {
  option_->description(text);
  return *this;
}

Option& Option::default_str(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::envname(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Option& Option::configurable(bool value) {
  option_->configurable(value);
  return *this;
}

Option& Option::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

Option& Option::allow_extra_args(bool value) {
  option_->allow_extra_args(value);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

template <class Value>
Option& Option::range(Value low, Value high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

template Option& Option::range(int, int);
template Option& Option::range(unsigned, unsigned);
template Option& Option::range(double, double);

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::one_of(std::span<const std::string_view> values) {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Option& Option::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}

Option& Option::existing_directory() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}

Option& Option::check(std::function<Status(const std::string&)> find_fault) {
  option_->check(CLI::Validator(
      [find_fault = std::move(find_fault)](const std::string& text) {
        const Status status = find_fault(text);
        return status ? std::string() : status.error().message;
      },
      ""));
  return *this;
}

std::string Option::name() const { return option_->get_name(); }
bool Option::given() const { return option_->count() > 0; }
std::vector<std::string> Option::values() const { return option_->results(); }

template <class Value>
Option Command::add_option(const std::string& name, Value& value, const std::string& description) {
  return Option(app_->add_option(name, value, description));
}

Option Command::add_parsed(const std::string& name, std::function<Status(const std::string&)> parse,
                           const std::string& description) {
  return Option(app_->add_option_function<std::string>(
      name,
      [name, parse = std::move(parse)](const std::string& text) {
        if (const Status status = parse(text); !status) throw CLI::ValidationError(name, status.error().message);
      },
      description));
}

Option Command::add_parsed_list(const std::string& name, std::function<Status(const std::vector<std::string>&)> parse,
                                const std::string& description) {
  return Option(app_->add_option_function<std::vector<std::string>>(
      name,
      [name, parse = std::move(parse)](const std::vector<std::string>& texts) {
        if (const Status status = parse(texts); !status) throw CLI::ValidationError(name, status.error().message);
      },
      description));
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& description) {
  return Option(app_->add_flag(name, value, description));
}

Command Command::add_command(const std::string& name, const std::string& description, std::function<void()> run) {
  CLI::App* command = app_->add_subcommand(name, description);
  command->require_subcommand(0, 1)->fallthrough();
  command->callback(std::move(run));
  return Command(command);
}

Command Command::add_group(const std::string& name, const std::string& description) {
  CLI::App* group = app_->add_subcommand(name, description);
  group->require_subcommand(1)->fallthrough();
  return Command(group);
}

void Command::add_name(const std::string& name, const std::string& description) {
  app_->add_subcommand(name, description)->prefix_command()->set_help_flag();
}

Command Command::add_option_group(const std::string& name, std::size_t least, std::size_t most) {
  CLI::App* group = app_->add_option_group(name);
  group->require_option(least, most);
  return Command(group);
}

void Command::footer(const std::string& text) { app_->footer(text); }

Option Command::option(const std::string& name) const { return Option(app_->get_option(name)); }

std::vector<Option> Command::options() const {
  std::vector<Option> all;
  for (CLI::Option* option : app_->get_options()) {
    if (option != app_->get_help_ptr()) all.emplace_back(option);
  }
  return all;
}

void Command::remove_option(const std::string& name) { app_->remove_option(app_->get_option(name)); }

template Option Command::add_option(const std::string&, bool&, const std::string&);
template Option Command::add_option(const std::string&, std::uint16_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint32_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, float&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::uint32_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::uint32_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::uint64_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<double>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::filesystem::path>&, const std::string&);
template Option Command::add_option(const std::string&, std::array<float, 3>&, const std::string&);

}  // namespace shale
