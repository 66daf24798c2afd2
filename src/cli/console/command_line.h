// The program's command line as data, for what is generated of it: completions of shells, the
// manual page.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace penstock {

struct FlagText {
  std::vector<std::string> names;  // with dashes: "-m", "--model"
  std::string description;
  std::string value;  // kind of value: "PATH"; "": the flag takes none
  // values if they are listed
  std::vector<std::string> choices;
};

struct CommandText {
  std::vector<std::string> path;  // {"keys", "add"}; empty: the program itself
  std::string description;
  std::vector<FlagText> flags;
  std::vector<std::string> commands;  // names of its subcommands
  bool takes_arguments = false;       // arguments that are no flags
  // values of such an argument if they are listed
  std::vector<std::string> choices;
};

// Returns the program and all commands that --help shows, each before its own subcommands.
std::vector<CommandText> command_texts(const CLI::App& program);

// Return the script that a shell sources to complete the program's arguments.
std::string bash_completion(const std::vector<CommandText>& commands);
std::string zsh_completion(const std::vector<CommandText>& commands);
std::string fish_completion(const std::vector<CommandText>& commands);

// Returns the manual page penstock(1) in man's macros. footer: text behind the commands.
std::string manual_page(const std::vector<CommandText>& commands, const std::string& version,
                        const std::string& footer);

}  // namespace penstock
