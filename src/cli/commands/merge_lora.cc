// penstock merge-lora: adds a LoRA adapter to the weights of a checkpoint and writes the result.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "quantize/merge_lora.h"

namespace penstock {
namespace {

struct MergeLoraCommand {
  explicit MergeLoraCommand(CLI::App& app) {
    app.add_option("-m,--model", base, "the base: a GGUF file or a Hugging Face directory")
        ->required();
    app.add_option("--lora", adapter,
                   "the adapter, in the base's format: a GGUF file or a PEFT directory")
        ->required();
    app.add_option("-o,--output", out, "a GGUF file or a directory, as the base is; must not exist")
        ->required();
  }

  int run() const {
    const auto source = open_weights(base);
    if (!source) return fail(source.error());
    const auto opened = open_lora(adapter);
    if (!opened) return fail(opened.error());
    const Status merged = merge_lora(**source, *opened, out);
    if (!merged) return fail(merged.error());
    std::printf("%s: %zu weights changed\n", out.c_str(), opened->modules.size());
    return kExitOk;
  }

  std::string base, adapter, out;
};

}  // namespace

Action add_merge_lora(CLI::App& app) {
  auto command = std::make_shared<MergeLoraCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
