// penstock rm: removes models from the Hugging Face cache.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "hub/hub.h"

namespace penstock {
namespace {

struct RmCommand {
  explicit RmCommand(CLI::App& app) {
    app.add_option(
           "name", names,
           "org/name (all of it, unfinished downloads too), org/name@revision, org/name:FILE or "
           "org/name:Q4_K_M")
        ->required();
  }

  int run() const {
    const auto settings = hub_settings();
    if (!settings) return fail(settings.error());
    for (const std::string& name : names) {
      const auto removed = remove_model(*settings, name);
      if (!removed) return fail(removed.error());
      std::printf("%s: %s freed\n", name.c_str(),
                  format_bytes(static_cast<double>(removed->bytes)).c_str());
    }
    return kExitOk;
  }

  std::vector<std::string> names;
};

}  // namespace

Action add_rm(CLI::App& app) {
  auto command = std::make_shared<RmCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
