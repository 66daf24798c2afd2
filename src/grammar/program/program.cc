#include "grammar/program/program.h"

#include <fmt/format.h>

#include <unordered_map>

namespace penstock::grammar {

namespace {

// Backward search from the returns; visits each instruction and symbol once.
class ReturnFinder {
 public:
  explicit ReturnFinder(Program& program)
      : program_(program),
        before_(program.code.size()),
        calls_(program.symbols.size()),
        uses_(calls_.size()) {}

  void run() {
    using Op = Instruction::Op;
    program_.may_return.assign(program_.code.size(), false);
    empty_.assign(program_.symbols.size(), false);
    const auto n_code = static_cast<uint32_t>(program_.code.size());
    for (uint32_t at = 0; at < n_code; ++at) {
      const Instruction& i = program_.code[at];
      if (i.op == Op::kReturn) found(at);
      if (i.op == Op::kMatch || i.op == Op::kCall) before_[i.b].push_back(at);
      if (i.op == Op::kCall) calls_[i.a].push_back(at);
      for (uint32_t t = i.a; i.op == Op::kSplit && t < i.b; ++t)
        before_[program_.targets[t]].push_back(at);
    }
    const auto n_symbols = static_cast<uint32_t>(program_.symbols.size());
    for (uint32_t symbol = 0; symbol < n_symbols; ++symbol) {
      const Symbol& s = program_.symbols[symbol];
      if (s.kind == Symbol::Kind::kRule) entries_.emplace(s.index, symbol);
      if (s.kind != Symbol::Kind::kRepetition) continue;
      uses_[program_.repetitions[s.index].body].push_back(symbol);
      if (program_.repetitions[s.index].min == 0) found_empty(symbol);
    }
    for (; !open_.empty();) {
      const uint32_t at = open_.back();
      open_.pop_back();
      const auto [begin, end] = entries_.equal_range(at);
      for (auto entry = begin; entry != end; ++entry) found_empty(entry->second);
      for (const uint32_t before : before_[at]) look(before);
    }
  }

 private:
  void found(uint32_t at) {
    if (program_.may_return[at]) return;
    program_.may_return[at] = true;
    open_.push_back(at);
  }
  void found_empty(uint32_t symbol) {
    std::vector<uint32_t> open{symbol};
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (empty_[at]) continue;
      empty_[at] = true;
      for (const uint32_t call : calls_[at]) look(call);
      open.insert(open.end(), uses_[at].begin(), uses_[at].end());
    }
  }
  void look(uint32_t at) {
    const Instruction& i = program_.code[at];
    switch (i.op) {
      case Instruction::Op::kSplit: return found(at);
      case Instruction::Op::kCall:
        if (empty_[i.a] && program_.may_return[i.b]) found(at);
        return;
      case Instruction::Op::kMatch: {
        const auto& [lexeme, window] = program_.leaves[i.a];
        if (program_.may_return[i.b] && !lexeme->empty() &&
            lexeme->accepts(lexeme->start(), 0, window))
          found(at);
        return;
      }
      default: return;
    }
  }

  Program& program_;
  std::vector<std::vector<uint32_t>> before_, calls_,
      // predecessors: instructions by successor, by symbol; repetitions by body
      uses_;
  std::unordered_multimap<uint32_t, uint32_t> entries_;  // symbols by their first instruction
  // by symbol: whether it accepts the empty text
  std::vector<bool> empty_;
  std::vector<uint32_t> open_;
};

}  // namespace

void find_returns(Program& program) { ReturnFinder(program).run(); }

size_t memory_of(const Program& program) {
  constexpr size_t kState = 256;  // bytes per automaton state, including edges
  const auto of_vector = [](const auto& list) { return list.capacity() * sizeof(list[0]); };
  size_t bytes = of_vector(program.goals) + of_vector(program.symbols) + of_vector(program.code) +
                 of_vector(program.targets) + of_vector(program.repetitions);
  for (const Leaf& leaf : program.leaves)
    bytes += sizeof(Leaf) + leaf.lexeme->dfa.n_states() * kState;
  for (const ObjectGraph& graph : program.objects) {
    bytes += sizeof(graph) + of_vector(graph.states) + of_vector(graph.edges) +
             of_vector(graph.edge_lists);
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
