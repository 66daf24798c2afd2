// Deterministic automata over characters, made from expressions.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "grammar/parts/budget.h"
#include "grammar/parts/refusal.h"
#include "grammar/regex/alphabet.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

// Immutable once made. Every state but kDead can reach an accepting one.
struct CharDfa {
  static constexpr uint32_t kDead = 0;

  Alphabet alphabet;
  uint32_t start = kDead;
  std::vector<uint32_t> next;  // [n_states, alphabet.size()]
  std::vector<uint32_t> tags;  // [n_states]; 0: does not accept

  uint32_t n_states() const { return static_cast<uint32_t>(tags.size()); }
  uint32_t step(uint32_t state, char32_t c) const {
    return next[state * static_cast<size_t>(alphabet.size()) + alphabet.symbol(c)];
  }
  // Returns the tag of the state after text.
  uint32_t run(std::u32string_view text) const;
};

// Returns an automaton that accepts the language of expr with tag 1. Errors: kTooLarge.
Compiled<CharDfa> make_dfa(ExprPool& pool, ExprId expr, Budget& budget);

// Returns an automaton that classifies texts by several expressions: it accepts with
// tag_of(matched), where matched[i] is whether exprs[i] matches (tag 0: not accepted).
using TagOf = std::function<uint32_t(const std::vector<bool>& matched)>;
Compiled<CharDfa> make_classifier(ExprPool& pool, std::span<const ExprId> exprs,
                                  const TagOf& tag_of, Budget& budget);

// Sets of more words than this count as infinite.
inline constexpr uint32_t kManyWords = 1U << 20;

}  // namespace penstock::grammar
