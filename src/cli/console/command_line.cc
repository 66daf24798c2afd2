#include "cli/console/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

namespace penstock {
namespace {

// Returns the listed values of "TEXT:{a,b}"; nothing for other kinds.
std::vector<std::string> choices_of(std::string_view kind) {
  const size_t open = kind.find('{'), close = kind.find('}', open);
  std::vector<std::string> choices;
  if (open == kind.npos || close == kind.npos) return choices;
  for (std::string_view list = kind.substr(open + 1, close - open - 1); !list.empty();) {
    const size_t comma = std::min(list.find(','), list.size());
    choices.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return choices;
}

void add_flags(const CLI::App& app, CommandText& text) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const std::string kind = option->get_type_name();
    if (option->get_positional()) {
      text.takes_arguments = true;
      text.choices = choices_of(kind);
    }
    FlagText flag;
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    if (flag.names.empty()) continue;
    flag.description = option->get_description();
    if (option->get_items_expected_max() > 0) flag.value = kind.substr(0, kind.find(':'));
    flag.choices = choices_of(kind);
    text.flags.push_back(std::move(flag));
  }
}

void add_texts(const CLI::App& app, const std::vector<std::string>& path,
               std::vector<CommandText>& texts) {
  CommandText text{path, app.get_description(), {}, {}, false, {}};
  add_flags(app, text);
  std::vector<const CLI::App*> below;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name().empty()) {
      add_flags(*sub, text);  // a group of options
    } else if (!sub->get_group().empty()) {
      text.commands.push_back(sub->get_name());
      below.push_back(sub);
    }
  }
  texts.push_back(std::move(text));
  for (const CLI::App* sub : below) {
    std::vector<std::string> deeper = path;
    deeper.push_back(sub->get_name());
    add_texts(*sub, deeper, texts);
  }
}

// Returns the path as the scripts compare it: "/keys/add".
std::string joined(const CommandText& command) {
  std::string path;
  for (const std::string& name : command.path) path += "/" + name;
  return path;
}

const std::string& description_of(const std::vector<CommandText>& commands,
                                  const std::string& path) {
  return std::ranges::find(commands, path, joined)->description;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Returns the text in single quotes of a POSIX shell.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::vector<std::string> names_of(const CommandText& command) {
  std::vector<std::string> names = command.commands;
  names.insert(names.end(), command.choices.begin(), command.choices.end());
  for (const FlagText& flag : command.flags)
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

}  // namespace

std::vector<CommandText> command_texts(const CLI::App& program) {
  std::vector<CommandText> texts;
  add_texts(program, {}, texts);
  return texts;
}

std::string bash_completion(const std::vector<CommandText>& commands) {
  std::string paths, values, words;
  for (const CommandText& command : commands) {
    const std::string path = joined(command);
    if (!path.empty()) paths += (paths.empty() ? "" : "|") + path;
    for (const FlagText& flag : command.flags) {
      if (flag.value.empty()) continue;
      std::string cases;
      for (const std::string& name : flag.names)
        cases += fmt::format("{}'{} {}'", cases.empty() ? "" : "|", path, name);
      values += fmt::format("    {}) COMPREPLY=($(compgen {} -- \"$word\")); return ;;\n", cases,
                            flag.choices.empty()
                                ? "-f"
                                : "-W " + quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
    }
    words += fmt::format("    '{}') words={} files={} ;;\n", path,
                         quoted(fmt::format("{}", fmt::join(names_of(command), " "))),
                         command.takes_arguments && command.choices.empty() ? "1" : "");
  }
  return fmt::format(
      "# Completion of penstock's arguments for bash: source it, or put it into\n"
      "# ~/.local/share/bash-completion/completions/penstock\n"
      "_penstock() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} path= words= files= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$path/${{COMP_WORDS[i]}}\" in {}) path+=/${{COMP_WORDS[i]}} ;; esac\n"
      "  done\n"
      "  case \"$path ${{COMP_WORDS[COMP_CWORD - 1]}}\" in\n{}  esac\n"
      "  case \"$path\" in\n{}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  [[ -z $files || $word == -* ]] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "}}\n"
      "complete -o filenames -F _penstock penstock\n",
      paths, values, words);
}

std::string zsh_completion(const std::vector<CommandText>& commands) {
  const auto described = [](const std::string& name, const std::string& description) {
    return quoted(name + ":" + replaced(replaced(description, "\n", " "), ":", "\\:"));
  };
  std::string paths, values, lists;
  for (const CommandText& command : commands) {
    const std::string path = joined(command);
    if (!path.empty()) paths += (paths.empty() ? "" : "|") + path;
    std::string list;
    for (const std::string& name : command.commands) {
      list += " " + described(name, description_of(commands, path + "/" + name));
    }
    for (const std::string& choice : command.choices) list += " " + described(choice, "");
    for (const FlagText& flag : command.flags) {
      std::string cases;
      for (const std::string& name : flag.names) {
        list += " " + described(name, flag.description);
        cases += fmt::format("{}'{} {}'", cases.empty() ? "" : "|", path, name);
      }
      if (flag.value.empty()) continue;
      values += fmt::format("    {}) {}; return ;;\n", cases,
                            flag.choices.empty()
                                ? "_files"
                                : fmt::format("compadd -- {}", fmt::join(flag.choices, " ")));
    }
    lists += fmt::format("    '{}') list=({}) ;;\n", path, list);
  }
  return fmt::format(
      "#compdef penstock\n"
      "# Completion of penstock's arguments for zsh: a file _penstock in a folder of $fpath.\n"
      "_penstock() {{\n"
      "  local at= i\n"  // not path, which zsh ties to PATH
      "  local -a list\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case \"$at/${{words[i]}}\" in {}) at+=/${{words[i]}} ;; esac\n"
      "  done\n"
      "  case \"$at ${{words[CURRENT - 1]}}\" in\n{}  esac\n"
      "  case \"$at\" in\n{}  esac\n"
      "  _describe argument list || _files\n"
      "}}\n"
      // As a file of $fpath it runs as the function itself, else it is sourced.
      "if [ \"$funcstack[1]\" = _penstock ]; then _penstock \"$@\"; else compdef _penstock "
      "penstock; fi\n",
      paths, values, lists);
}

std::string fish_completion(const std::vector<CommandText>& commands) {
  std::string paths;
  for (const CommandText& command : commands) paths += " " + joined(command);
  std::string text = fmt::format(
      "# Completion of penstock's arguments for fish: ~/.config/fish/completions/penstock.fish\n"
      "function __penstock_is\n"
      "  set -l at ''\n"
      "  for word in (commandline -opc)[2..]\n"
      "    contains -- \"$at/$word\"{}; and set at \"$at/$word\"\n"
      "  end\n"
      "  test \"$at/\" = \"$argv[1]\"\n"
      "end\n",
      paths);
  for (const CommandText& command : commands) {
    const std::string path = joined(command);
    const std::string when = fmt::format("__penstock_is {}/", path);
    for (const std::string& name : command.commands) {
      text += fmt::format("complete -c penstock -n {} -a {} -d {}\n", fish_quoted(when), name,
                          fish_quoted(description_of(commands, path + "/" + name)));
    }
    if (!command.takes_arguments || !command.choices.empty())
      text += fmt::format("complete -c penstock -n {} -f\n", fish_quoted(when));
    if (!command.choices.empty()) {
      text += fmt::format("complete -c penstock -n {} -a {}\n", fish_quoted(when),
                          fish_quoted(fmt::format("{}", fmt::join(command.choices, " "))));
    }
    for (const FlagText& flag : command.flags) {
      text += fmt::format("complete -c penstock -n {}", fish_quoted(when));
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!flag.value.empty()) text += " -r";
      if (!flag.choices.empty())
        text += " -f -a " + fish_quoted(fmt::format("{}", fmt::join(flag.choices, " ")));
      text += fmt::format(" -d {}\n", fish_quoted(replaced(flag.description, "\n", " ")));
    }
  }
  return text;
}

std::string manual_page(const std::vector<CommandText>& commands, const std::string& version,
                        const std::string& footer) {
  // A line must not begin with a dot or an apostrophe, and a backslash begins an escape.
  const auto text = [](const std::string& plain) {
    std::string lines;
    for (size_t at = 0; at < plain.size();) {
      const size_t end = std::min(plain.find('\n', at), plain.size());
      const std::string line =
          replaced(replaced(plain.substr(at, end - at), "\\", "\\e"), "-", "\\-");
      lines += (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + line + "\n";
      at = end + 1;
    }
    return lines;
  };
  std::string page = fmt::format(
      ".TH PENSTOCK 1 \"\" \"penstock {}\"\n.SH NAME\npenstock \\- serve and run large language "
      "models\n.SH SYNOPSIS\n.B penstock\n[\\-\\-config FILE] [COMMAND] [OPTIONS]\n",
      version);
  for (const CommandText& command : commands) {
    page += command.path.empty() ? ".SH OPTIONS\n"
                                 : fmt::format(".SH \"{}\"\n{}", fmt::join(command.path, " "),
                                               text(command.description));
    for (const FlagText& flag : command.flags) {
      page += ".TP\n.B " + text(fmt::format("{}{}{}", fmt::join(flag.names, ", "),
                                            flag.value.empty() ? "" : " ", flag.value));
      page += text(flag.description.empty() ? "-" : flag.description);
    }
  }
  return page + ".SH NOTES\n" + text(footer);
}

}  // namespace penstock
