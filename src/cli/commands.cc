#include "cli/commands.h"

#include <vector>

namespace penstock {

std::span<const Command> commands() {
  static const std::vector<Command> list = {
      {"inspect", "show what is in a model file", add_inspect},
      {"plan", "memory of weights and KV cache, and how many sequences fit", add_plan},
      {"render", "print what a chat template makes of a conversation", add_render},
      {"tokenize", "text to token ids and back", add_tokenize},
  };
  return list;
}

}  // namespace penstock
