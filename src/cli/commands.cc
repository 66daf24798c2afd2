#include "cli/commands.h"

#include <vector>

namespace penstock {

std::span<const Command> commands() {
  static const std::vector<Command> list = {
      // {"name", "summary", add_name},
  };
  return list;
}

}  // namespace penstock
