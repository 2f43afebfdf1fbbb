// How commands declare their options. Commands do not see the library that parses them (CLI11): each file that did
// would compile for seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli11_fwd.h"
#include "core/error.h"

namespace shale {

// A handle to an option of a command, valid as long as the command. Its functions say more of the option and return it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // What the help calls a value: "N", "FILE", "on|off".
  Option& type_name(const std::string& name);
  // The heading of the help under which it stands.
  Option& group(const std::string& name);
  Option& description(const std::string& text);
  // What the help gives as the default: the text, or the variable's value now.
  Option& default_str(const std::string& text);
  Option& capture_default_str();

  Option& required();
  Option& envname(const std::string& variable);
  // False: the configuration file may not have it.
  Option& configurable(bool value);
  // One text may hold several values.
  Option& delimiter(char between);
  // False: each value of a list has the option's name before it.
  Option& allow_extra_args(bool value);
  Option& needs(const Option& other);
  Option& excludes(const Option& other);

  // Allows values from `low` to `high`, both included. Value: int, unsigned or double.
  template <class Value>
  Option& range(Value low, Value high);
  Option& positive();
  Option& one_of(std::initializer_list<std::string_view> values) { return one_of(std::span(values)); }
  Option& one_of(std::span<const std::string_view> values);
  Option& existing_file();
  Option& existing_directory();
  // What `find_fault` says of a value is the user's error message.
  Option& check(std::function<Status(const std::string&)> find_fault);

  // Once the command line, the environment and the configuration have been read:
  // "--max-tokens"
  std::string name() const;
  bool given() const;
  std::vector<std::string> values() const;

 private:
  CLI::Option* option_;
};

// A handle to a command, valid as long as the program runs.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `value` outlives the command and keeps what it has where the option is not given. Value: one of the types at the
  // end of command_line.cc. A name without dashes is a position's.
  template <class Value>
  Option add_option(const std::string& name, Value& value, const std::string& description);
  // An option whose text is for `parse` to read; what that finds wrong is the user's error message.
  Option add_parsed(const std::string& name, std::function<Status(const std::string&)> parse,
                    const std::string& description);
  // Likewise with all texts of a list.
  Option add_parsed_list(const std::string& name, std::function<Status(const std::vector<std::string>&)> parse,
                         const std::string& description);
  Option add_flag(const std::string& name, bool& value, const std::string& description);

  // A command whose options are read before `run` is called.
  Command add_command(const std::string& name, const std::string& description, std::function<void()> run);
  // A command that only groups others, of which one has to be named.
  Command add_group(const std::string& name, const std::string& description);
  // A command of which only the name is read: what follows it is not this program's, not even --help.
  void add_name(const std::string& name, const std::string& description);
  // Options of this command, of which at least `least` and at most `most` have to be given.
  Command add_option_group(const std::string& name, std::size_t least, std::size_t most);

  // Text below the help.
  void footer(const std::string& text);
  // An option that it has.
  Option option(const std::string& name) const;
  // All but --help, as they were declared.
  std::vector<Option> options() const;
  void remove_option(const std::string& name);

 private:
  CLI::App* app_;
};

}  // namespace shale
