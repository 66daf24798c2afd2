#include "grammar/regex/char_dfa.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

using Key = std::vector<ExprId>;

// Breadth-first search over the derivatives of a list of expressions.
class Explorer {
 public:
  Explorer(ExprPool& pool, std::span<const ExprId> exprs, const TagOf& tag_of, Budget& budget)
      : pool_(pool), tag_of_(tag_of), budget_(budget) {
    dfa_.alphabet = Alphabet::of(pool.sets_of(exprs), budget);
    keys_.push_back(Key(exprs.size(), ExprPool::kNothing));
    dfa_.tags.push_back(0);
    // A text that no expression can match may still be accepted by tag_of(), and is then a regular
    // state.
    if (tag_of(std::vector<bool>(exprs.size(), false)) == 0)
      index_.insert(hash_of(keys_.front()), CharDfa::kDead);
    dfa_.start = state_of(Key(exprs.begin(), exprs.end()));
  }

  Compiled<CharDfa> run() {
    const int n_symbols = dfa_.alphabet.size();
    if (n_symbols > Alphabet::kMostSymbols || budget_.exhausted()) return too_many();
    for (uint32_t state = 0; state < keys_.size(); ++state) {
      if (!budget_.take_states(1) || !budget_.take_edges(n_symbols)) return too_many();
      // Rows are made when their edges were counted, however many states are known.
      dfa_.next.resize((state + 1) * static_cast<size_t>(n_symbols), CharDfa::kDead);
      for (int symbol = 0; symbol < n_symbols; ++symbol) {
        const uint32_t target = state == 0 ? 0 : successor(state, dfa_.alphabet.sample(symbol));
        dfa_.next[state * static_cast<size_t>(n_symbols) + symbol] = target;
      }
      if (pool_.exhausted()) return too_many();
    }
    dfa_.next.resize(keys_.size() * n_symbols, CharDfa::kDead);
    return std::move(dfa_);
  }

 private:
  static tl::unexpected<Refusal> too_many() {
    return too_large(
        "the pattern needs too many states: shorten it or lower its repetition counts");
  }

  static uint64_t hash_of(const Key& key) {
    uint64_t hash = 1;
    for (const ExprId id : key) hash = mix(hash, static_cast<uint32_t>(id));
    return hash;
  }

  uint32_t tag(const Key& key) const {
    std::vector<bool> matched(key.size());
    for (size_t i = 0; i < key.size(); ++i) matched[i] = pool_.accepts_empty(key[i]);
    return tag_of_(matched);
  }

  uint32_t state_of(const Key& key) {
    const uint64_t hash = hash_of(key);
    const uint32_t found = index_.find(hash, [&](uint32_t i) { return keys_[i] == key; });
    if (found != InternTable::kAbsent) return found;
    const auto state = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
    dfa_.tags.push_back(tag(key));
    index_.insert(hash, state);
    return state;
  }

  uint32_t successor(uint32_t state, char32_t c) {
    Key key = keys_[state];
    for (ExprId& id : key) id = pool_.derivative(id, c);
    return state_of(key);
  }

  ExprPool& pool_;
  const TagOf& tag_of_;
  Budget& budget_;
  CharDfa dfa_;
  std::vector<Key> keys_;
  InternTable index_;
};

std::vector<bool> live_states(const CharDfa& dfa) {
  const size_t n = dfa.n_states(), n_symbols = dfa.alphabet.size();
  std::vector<std::vector<uint32_t>> before(n);
  for (uint32_t state = 0; state < n; ++state) {
    for (size_t symbol = 0; symbol < n_symbols; ++symbol)
      before[dfa.next[state * n_symbols + symbol]].push_back(state);
  }
  std::vector<bool> live(n, false);
  std::vector<uint32_t> stack;
  for (uint32_t state = 1; state < n; ++state) {
    if (dfa.tags[state] != 0) {
      live[state] = true;
      stack.push_back(state);
    }
  }
  while (!stack.empty()) {
    const uint32_t state = stack.back();
    stack.pop_back();
    for (const uint32_t from : before[state]) {
      if (from == 0 || live[from]) continue;
      live[from] = true;
      stack.push_back(from);
    }
  }
  return live;
}

// Redirects edges to states that cannot reach acceptance to the dead state.
void prune(CharDfa& dfa) {
  const std::vector<bool> live = live_states(dfa);
  for (uint32_t& target : dfa.next) {
    if (!live[target]) target = CharDfa::kDead;
  }
  if (!live[dfa.start]) dfa.start = CharDfa::kDead;
}

}  // namespace

uint32_t CharDfa::run(std::u32string_view text) const {
  uint32_t state = start;
  for (const char32_t c : text) {
    if (state == kDead) return 0;
    state = step(state, c);
  }
  return tags[state];
}

Compiled<CharDfa> make_classifier(ExprPool& pool, std::span<const ExprId> exprs,
                                  const TagOf& tag_of, Budget& budget) {
  auto dfa = Explorer(pool, exprs, tag_of, budget).run();
  if (dfa) prune(*dfa);
  return dfa;
}

Compiled<CharDfa> make_dfa(ExprPool& pool, ExprId expr, Budget& budget) {
  return make_classifier(
      pool, {&expr, 1}, [](const std::vector<bool>& matched) { return matched[0] ? 1U : 0U; },
      budget);
}

}  // namespace penstock::grammar
