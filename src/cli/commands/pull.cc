// penstock pull: downloads models from a Hugging Face hub into its cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/memory.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/options/model_download.h"
#include "cli/planning/known_models.h"

namespace penstock {
namespace {

constexpr int kSuggestions = 6;

struct PullCommand {
  explicit PullCommand(CLI::App& app) {
    app.add_option("name", names,
                   "org/name, org/name:FILE or org/name:Q4_K_M, with @revision before the colon; "
                   "none: names of well-known models that fit this machine's memory are printed");
    app.footer(
        "Prints the path of each. HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE "
        "mean what they mean to Hugging Face's tools.");
  }

  int run() const {
    if (names.empty()) {
      const std::string models = fitting_models(available_memory(), 0, kSuggestions);
      if (models.empty()) {
        fmt::print("no well-known model fits this machine's free memory\n");
      } else {
        fmt::print(
            "well-known models that fit this machine's free memory, with a conversation of {} "
            "tokens:\n{}",
            kConversationTokens, models);
      }
      return kExitOk;
    }
    for (const std::string& name : names) {
      const auto found = download_newest(name);
      if (!found) return fail(with_similar_models(found.error(), name));
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
