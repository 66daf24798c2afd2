// THE list of commands. A command registers its options on its own CLI::App and returns what runs after parsing.
#pragma once
#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace penstock {

using Action = std::function<int()>;  // returns the exit code

struct Command {
  const char* name;
  const char* summary;
  Action (*add)(CLI::App& app);
};

std::span<const Command> commands();

// One line each in commands.cc; defined in the file of the same name.
Action add_run(CLI::App& app);
Action add_generate(CLI::App& app);
Action add_tokenize(CLI::App& app);
Action add_render(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_score(CLI::App& app);
Action add_perplexity(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_serve(CLI::App& app);
Action add_quantize(CLI::App& app);
Action add_eval_quant(CLI::App& app);
Action add_imatrix(CLI::App& app);
Action add_keys(CLI::App& app);
Action add_models(CLI::App& app);
Action add_pull(CLI::App& app);
Action add_rm(CLI::App& app);

}  // namespace penstock
