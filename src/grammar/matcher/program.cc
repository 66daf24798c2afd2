#include "grammar/matcher/program.h"

#include <fmt/format.h>

namespace penstock::grammar {

std::string summary_of(const Program& program) {
  std::string out;
  const auto line = [&out](const char* what, size_t n, const char* of, size_t m) {
    if (n > 0) out += fmt::format("{}: {} ({}: {})\n", what, n, of, m);
  };
  size_t lexer_states = 0, object_states = 0, keys = 0, array_states = 0;
  for (const Leaf& leaf : program.leaves) lexer_states += leaf.lexeme->dfa.n_states();
  for (const ObjectGraph& graph : program.objects) {
    object_states += graph.states.size();
    if (graph.slot_keys != nullptr) keys += graph.slot_keys->dfa.n_states();
  }
  for (const ArrayGraph& graph : program.arrays) array_states += graph.states.size();
  line("values", program.goals.size(), "states of their keys", keys);
  line("objects", program.objects.size(), "states", object_states);
  line("arrays", program.arrays.size(), "states", array_states);
  line("lexemes", program.leaves.size(), "states", lexer_states);
  line("rules", program.symbols.size(), "instructions", program.code.size());
  return out;
}

}  // namespace penstock::grammar
