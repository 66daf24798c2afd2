#include "grammar/lexer/lexeme.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::grammar {
namespace {

CompletionLengths::Graph graph_of(const CharDfa& dfa) {
  CompletionLengths::Graph graph;
  const size_t n_symbols = dfa.alphabet.size();
  for (uint32_t state = 0; state < dfa.n_states(); ++state) {
    std::vector<uint32_t> to(dfa.next.begin() + static_cast<ptrdiff_t>(state * n_symbols),
                             dfa.next.begin() + static_cast<ptrdiff_t>((state + 1) * n_symbols));
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    std::erase(to, CharDfa::kDead);
    graph.successors.push_back(std::move(to));
    graph.accepts.push_back(dfa.tags[state] != 0);
  }
  return graph;
}

bool accepts_everything(const CharDfa& dfa) {
  const auto all_self = [&](uint32_t state) {
    for (int s = 0; s < dfa.alphabet.size(); ++s) {
      if (dfa.next[state * static_cast<size_t>(dfa.alphabet.size()) + s] != state) return false;
    }
    return true;
  };
  return dfa.start != CharDfa::kDead && dfa.tags[dfa.start] != 0 && all_self(dfa.start);
}

template <class T>
T built(Compiled<T> result) {
  PENSTOCK_CHECK(result.has_value());
  return *std::move(result);
}

std::shared_ptr<const Lexeme> number_lexeme(const NumberPiece& piece) {
  Budget budget{CompileLimits{}};
  auto lexeme = std::make_shared<Lexeme>();
  lexeme->dfa = built(make_number_dfa({&piece, 1}, NumberSpelling::kAny, budget));
  return lexeme;
}

CommonLexemes make_common() {
  Budget budget{CompileLimits{}};
  ExprPool pool;
  const CharDfa everything = built(make_dfa(pool, ExprPool::kEverything, budget));
  const ExprId space = pool.repeat(pool.chars({{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}}), 0, 16);
  return {
      .string = built(make_lexeme(everything, Spelling::kJson, true, budget)),
      .canonical_string = built(make_lexeme(everything, Spelling::kJsonCanonical, true, budget)),
      .number = number_lexeme({}),
      .integer = number_lexeme({.multiples_of = {1}}),
      .plain_integer = number_lexeme({.multiples_of = {1}, .digits_only = true}),
      .space =
          built(make_lexeme(built(make_dfa(pool, space, budget)), Spelling::kUtf8, false, budget))};
}

}  // namespace

bool Lexeme::alive_within(uint32_t state, CountWindow left) const {
  const auto chars = dfa.char_states(state);
  if (chars.empty()) return left.min == 0;  // after the closing quotation mark
  if (!dfa.inside_char(state)) return lengths.any_within(chars.front(), left);
  return left.max > 0 && std::any_of(chars.begin(), chars.end(), [&](uint32_t c) {
           return lengths.any_within(c, left.after(1));
         });
}

uint32_t Lexeme::count_words(uint32_t state, uint64_t count, const CountWindow& window,
                             uint32_t most) const {
  // Each visit leads to at least one word, and no two lead to the same. A path longer than the
  // number of states contains a loop, which yields unlimited words unless the window ends it.
  struct Visit {
    uint32_t state;
    uint64_t count, depth;
  };
  std::vector<Visit> open;
  const auto visit = [&](uint32_t to, uint64_t c, uint64_t depth) {
    if (alive(to, c, window)) open.push_back({to, c, depth});
  };
  const auto loops_enough = [&](const Visit& at) {
    return at.depth > dfa.n_states() &&
           (window.max == kNoLimit || (window.max - at.count) / dfa.n_states() > most);
  };
  visit(state, count, 0);
  uint64_t found = 0;
  for (uint64_t n_visits = 0; !open.empty() && n_visits < kMaxVisits; ++n_visits) {
    if (open.size() + found >= most) return most;
    const Visit at = open.back();
    open.pop_back();
    if (loops_enough(at)) return most;
    found += accepts(at.state, at.count, window) ? 1 : 0;
    for (const ByteEdge& e : dfa.edges(at.state)) {
      for (int byte = e.first; byte <= e.last && open.size() < most; ++byte) {
        visit(e.target, at.count + (e.ends_char ? 1 : 0), at.depth + 1);
      }
    }
  }
  return static_cast<uint32_t>(std::min<uint64_t>(found, most));
}

bool Lexeme::has_more_texts(uint64_t n) const {
  // Depth-first search. A path back to a state in progress is a loop, so that the number of texts
  // is unlimited.
  constexpr uint64_t kUnknown = UINT64_MAX, kBusy = UINT64_MAX - 1;
  struct Visit {
    uint32_t state;
    size_t edge;
    uint64_t texts;
  };
  std::vector<uint64_t> texts(dfa.n_states(), kUnknown);
  std::vector<Visit> open;
  const auto enter = [&](uint32_t state) {
    texts[state] = kBusy;
    open.push_back({state, 0, dfa.tag(state) != 0 ? 1U : 0U});
  };
  if (!empty()) enter(start());
  uint64_t of_last = 0;
  while (!open.empty()) {
    Visit& at = open.back();
    if (at.texts > n) return true;  // each is the end of a text from the start
    const auto edges = dfa.edges(at.state);
    if (at.edge == edges.size()) {
      of_last = texts[at.state] = at.texts;
      open.pop_back();
      continue;
    }
    const ByteEdge& e = edges[at.edge];
    if (texts[e.target] == kBusy) return true;
    if (texts[e.target] == kUnknown) {
      enter(e.target);
      continue;
    }
    at.texts += texts[e.target] * static_cast<uint64_t>(e.last - e.first + 1);
    ++at.edge;
  }
  return of_last > n;
}

Compiled<std::shared_ptr<const Lexeme>> make_lexeme(const CharDfa& chars, Spelling spelling,
                                                    bool with_lengths, Budget& budget) {
  auto lexeme = std::make_shared<Lexeme>();
  auto dfa = spell(chars, spelling, budget);
  if (!dfa) return tl::unexpected(std::move(dfa).error());
  lexeme->dfa = *std::move(dfa);
  lexeme->quoted = spelling != Spelling::kUtf8 && spelling != Spelling::kJsonPart;
  lexeme->any_content = accepts_everything(chars);
  if (with_lengths) {
    auto lengths = CompletionLengths::of(graph_of(chars), budget);
    if (!lengths) return tl::unexpected(std::move(lengths).error());
    lexeme->lengths = *std::move(lengths);
  }
  return lexeme;
}

const CommonLexemes& CommonLexemes::get() {
  static const CommonLexemes common = make_common();
  return common;
}

}  // namespace penstock::grammar
