#include "grammar/matcher/program.h"

#include <fmt/format.h>

namespace penstock::grammar {

size_t memory_of(const Program& program) {
  constexpr size_t kState = 256;  // of an automaton, with its edges
  const auto of_vector = [](const auto& list) { return list.capacity() * sizeof(list[0]); };
  size_t bytes = of_vector(program.goals) + of_vector(program.symbols) + of_vector(program.code) +
                 of_vector(program.targets) + of_vector(program.repetitions);
  for (const Leaf& leaf : program.leaves) bytes += sizeof(Leaf) + leaf.lexeme->dfa.n_states() * kState;
  for (const ObjectGraph& graph : program.objects) {
    bytes += sizeof(graph) + of_vector(graph.states) + of_vector(graph.edges) + of_vector(graph.edge_lists);
    for (const auto* keys : {&graph.slot_keys, &graph.other_keys, &graph.reserved_keys})
      bytes += *keys != nullptr ? (*keys)->dfa.n_states() * kState : 0;
  }
  for (const ArrayGraph& graph : program.arrays)
    bytes += sizeof(graph) + of_vector(graph.states) + of_vector(graph.edges);
  return bytes;
}

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
