#include "cli/console/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest_name.h"

namespace penstock {
namespace {

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view nearest = nearest_name(name, names);
  // Suggest a name if at most a third of its letters differ. Names of 4 letters and more may always
  // have two differences, so that swapped letters are found.
  const size_t most = nearest.size() < 4 ? 1 : std::max<size_t>(2, nearest.size() / 3);
  if (nearest.empty() || static_cast<size_t>(edit_distance(name, nearest)) > most) return {};
  return fmt::format("; the nearest is {}", nearest);
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  // subcommands without a name are groups of options
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_name().empty()) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app, const std::string& dashes) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(dashes + name);
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); }))
    for (std::string& name : options_of(*group, dashes)) names.push_back(std::move(name));
  return names;
}

// Returns the full name of a command, such as "penstock keys add".
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

// Returns the innermost command that was given.
const CLI::App& command_given(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : command_given(*given.back());
}

// Returns the error message for the first argument that no command accepts; "": there is none.
std::string extra_argument(const CLI::App& app, const CLI::App& command) {
  const CLI::App* at = &app;
  while (at->remaining().empty() && !at->get_subcommands().empty())
    at = at->get_subcommands().back();
  const std::vector<std::string> extras = at->remaining();
  // only positional arguments follow "--"
  const size_t mark = !extras.empty() && extras[0] == "--" ? 1 : 0;
  if (extras.size() == mark) return {};
  const std::string name = extras[mark].substr(0, extras[mark].find('='));
  if (mark == 0 && name.starts_with('-')) {
    if (at != &command && command.get_option_no_throw(name) != nullptr)
      return fmt::format("{} goes behind the command: {} {} ...", name, full_name(command), name);
    std::vector<std::string> known = options_of(*at, "--");
    if (at != &command) std::ranges::move(options_of(command, "--"), std::back_inserter(known));
    return fmt::format("there is no option {}{}", name, suggestion(name, known));
  }
  if (at == &command && !commands_of(*at).empty())
    return fmt::format("there is no command {}{}", name, suggestion(name, commands_of(*at)));
  return fmt::format("argument {} was not expected", extras[mark]);
}

// Returns the message for an unknown entry of the configuration file, such as "serve.prot".
std::string extra_entry(const CLI::App& app, const std::string& entry) {
  if (const size_t bracket = entry.find('['); bracket != std::string::npos)
    return fmt::format(
        "--config: {}: a section's line is [NAME], with nothing but a # comment behind it",
        entry.substr(bracket));
  const CLI::App* section = &app;
  size_t begin = 0;
  for (size_t end = entry.find('.'); end != std::string::npos;
       begin = end + 1, end = entry.find('.', begin)) {
    const std::string name = entry.substr(begin, end - begin);
    const std::vector<std::string> known = commands_of(*section);
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fmt::format("--config: there is no command for the section [{}]{}",
                         entry.substr(0, end), suggestion(name, known));
    section = section->get_subcommand(name);
  }
  const std::string name = entry.substr(begin);
  if (begin == 0)
    return fmt::format(
        "--config: {} stands in no section; a command's options stand below its name, as [serve]",
        name);
  return fmt::format("--config: {} has no option {}{}", full_name(*section), name,
                     suggestion(name, options_of(*section, "")));
}

// Returns the command other than `given` whose option `name` has the rejected value in `text`. The
// value then came from the configuration file. nullptr: none.
const CLI::App* refused_in_file(const CLI::App& app, const CLI::App& given, const std::string& name,
                                const std::string& text) {
  const std::string words = text + " ";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name().empty()) continue;  // a group of options, which belong to app
    const CLI::Option* option = command == &given ? nullptr : command->get_option_no_throw(name);
    if (option != nullptr && option->count() > 0 &&
        (!option->get_callback_run() ||
         words.find(" " + CLI::detail::join(option->results()) + " ") != words.npos))
      return command;
    if (const CLI::App* found = refused_in_file(*command, given, name, text)) return found;
  }
  return nullptr;
}

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
}

// Returns the message for a value of the wrong type. assignment: such as "--port = many".
std::string unfit_value(const CLI::App& command, const std::string& assignment) {
  const size_t at = assignment.find(" = ");
  if (at == std::string::npos) return assignment + ": the value is of another kind";
  const std::string name = assignment.substr(0, at), value = assignment.substr(at + 3);
  const CLI::Option* option = command.get_option_no_throw(name);
  const std::string type = option == nullptr ? "" : option->get_type_name();
  const bool is_signed = type.starts_with("INT"), negative = value.starts_with('-');
  if ((is_signed || (type.starts_with("UINT") && !negative)) && is_whole_number(value))
    return fmt::format("{}: {} is too {}", name, value, negative ? "small" : "large");
  const std::string_view kind = is_signed                  ? "a whole number"
                                : type.starts_with("UINT") ? "a whole number from 0 on"
                                : type.starts_with("FLOAT") || type.starts_with("SECONDS")
                                    ? "a number"
                                    : "another kind of value";
  return fmt::format("{}: expected {}, got {}", name, kind, value);
}

// Returns the optional positional argument that the command lacks, and that nothing stands in for;
// null: none.
const CLI::Option* missing_positional(const CLI::App& command) {
  const auto is_given = [](const CLI::Option* option) { return option->count() > 0; };
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() && !option->get_required() && !is_given(option) &&
        std::ranges::none_of(option->get_excludes(), is_given))
      return option;
  }
  return nullptr;
}

// Whether the option takes every text that follows it.
bool takes_texts(const CLI::Option* option) {
  if (option == nullptr || option->get_positional() || !option->get_allow_extra_args())
    return false;
  const std::string type = option->get_type_name();  // one of another type refuses the positional
  return type.starts_with("TEXT") || type == "NAME=PATH";
}

std::string with_usage(const CLI::App& command, const std::string& text) {
  const std::string name = full_name(command);
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(command.get_formatter());
  const std::string usage = formatter != nullptr ? formatter->make_usage(&command, name) : "";
  return fmt::format("{}: {}\n{}Run {} --help for more information.\n", name, text, usage, name);
}

}  // namespace

std::string taken_argument(const CLI::App& command, const std::vector<const char*>& args) {
  const CLI::Option* const missing = missing_positional(command);
  if (missing == nullptr) return {};
  std::string taker;             // the option that takes the texts that follow; "": none
  std::string_view first_value;  // of it; "": it has none
  for (auto at = std::ranges::find(args, command.get_name()); at != args.end(); ++at) {
    const std::string_view arg = *at;
    if (arg == "--") break;
    if (arg.starts_with('-')) {
      const size_t equals = std::min(arg.find('='), arg.size());
      taker = arg.substr(0, equals);
      first_value = arg.substr(std::min(equals + 1, arg.size()));
      if (!takes_texts(command.get_option_no_throw(taker))) taker.clear();
    } else if (!taker.empty() && !first_value.empty()) {
      return with_usage(command,
                        fmt::format("{0} has taken {1} and {2}, and there is no {3}, which "
                                    "goes in front of it; several values: {0} each time",
                                    taker, first_value, arg, missing->get_name(true)));
    } else {
      first_value = arg;
    }
  }
  return {};
}

std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  constexpr std::string_view kTooMany = ": At Most 1 required but received ",
                             kEntry = "INI was not able to parse ", kValue = "Could not convert: ";
  const CLI::App* command = &command_given(*app);
  std::string text = error.what();
  // The option is "--port" in "--port: Value 99999 not in range" and "Could not convert: --port =
  // many".
  const size_t value_at = text.starts_with(kValue) ? kValue.size() : 0;
  const std::string option =
      text.substr(value_at, text.find_first_of(value_at > 0 ? " " : ":", value_at) - value_at);
  const CLI::App* of_file = refused_in_file(*app, *command, option, text);
  // For an unknown subcommand CLI11 reports that one is required.
  const bool no_command =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      !commands_of(*command).empty();
  if (const size_t at = text.find(kTooMany); at != std::string::npos) {
    text = text.substr(0, at) + ": given " + text.substr(text.rfind(' ') + 1) +
           " times, expected once";
  } else if (no_command || error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    if (const std::string extra = extra_argument(*app, *command); !extra.empty()) text = extra;
  } else if (text.starts_with(kEntry)) {
    text = extra_entry(*app, text.substr(kEntry.size()));
    command = app;
  } else if (text.starts_with(kValue)) {
    text = unfit_value(of_file != nullptr ? *of_file : *command, text.substr(kValue.size()));
  }
  if (of_file != nullptr) {
    text = fmt::format("--config: {}: {}", full_name(*of_file), text);
    command = app;
  }
  return with_usage(*command, text);
}

}  // namespace penstock
