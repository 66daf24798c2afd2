// penstock completion: prints what is generated of the command line and of the endpoints: completions,
// the manual page, the description of the API.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands/commands.h"
#include "cli/console/command_line.h"
#include "cli/console/exit_codes.h"
#include "penstock/version.h"
#include "server/endpoints/openapi.h"

namespace penstock {
namespace {

struct CompletionCommand {
  explicit CompletionCommand(CLI::App& app) : program(*app.get_parent()) {
    app.add_option("shell", shell,
                   "bash, zsh or fish: a script that completes commands, flags and their values; "
                   "man: the manual page; openapi: the server's API in OpenAPI 3.1")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish", "man", "openapi"}));
  }

  int run() const {
    if (shell == "openapi") {
      std::puts(api_description(false).c_str());
      return kExitOk;
    }
    const std::vector<CommandText> commands = command_texts(program);
    const std::string text = shell == "bash"  ? bash_completion(commands)
                             : shell == "zsh" ? zsh_completion(commands)
                             : shell == "fish"
                                 ? fish_completion(commands)
                                 : manual_page(commands, kVersion, program.get_footer());
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }

  const CLI::App& program;
  std::string shell;
};

}  // namespace

Action add_completion(CLI::App& app) {
  auto command = std::make_shared<CompletionCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
