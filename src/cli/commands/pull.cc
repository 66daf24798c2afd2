// penstock pull: downloads models from a Hugging Face hub into its cache.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/options/model_download.h"

namespace penstock {
namespace {

struct PullCommand {
  explicit PullCommand(CLI::App& app) {
    app.add_option("name", names,
                   "org/name, org/name:FILE or org/name:Q4_K_M, with @revision before the colon")
        ->required();
    app.footer(
        "Prints the path of each. HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE "
        "mean what they mean to Hugging Face's tools.");
  }

  int run() const {
    for (const std::string& name : names) {
      const auto found = download_newest(name);
      if (!found) return fail(found.error());
      std::printf("%s\n", found->path.c_str());
      std::fflush(stdout);
    }
    return kExitOk;
  }

  std::vector<std::string> names;
};

}  // namespace

Action add_pull(CLI::App& app) {
  auto command = std::make_shared<PullCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
