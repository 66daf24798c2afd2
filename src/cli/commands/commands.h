// The commands of the program. Each one registers its options on its own CLI::App and returns the
// action that runs after parsing.
#pragma once
#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace penstock {

using Action = std::function<int()>;  // returns the exit code

using AddCommand = Action(CLI::App& app);

struct Command {
  const char* name;
  const char* summary;
  AddCommand* add;
};

std::span<const Command> commands();

}  // namespace penstock
