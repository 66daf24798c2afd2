// A terminal: the texts of an automaton over bytes, of which the number of characters may be bounded.
#pragma once
#include <memory>

#include "grammar/lexer/byte_dfa.h"
#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/number_dfa.h"
#include "grammar/lexer/spelling.h"

namespace penstock::grammar {

// Immutable; shared by grammars.
struct Lexeme {
  ByteDfa dfa;
  CompletionLengths lengths;  // of the states over characters; only where windows are used
  // Accepting states are those behind a closing quotation mark, which goes on to nothing.
  bool quoted = false;
  // Plain: every text of characters, so that only a window can end it.
  bool any_content = false;

  uint32_t start() const { return dfa.start(); }
  bool empty() const { return dfa.start() == ByteDfa::kDead; }

  // Whether a text that is in `state` after `count` whole characters can still be completed within the window.
  bool alive(uint32_t state, uint64_t count, const CountWindow& window) const {
    if (state == ByteDfa::kDead || count > window.max) return false;
    return window.trivial() || alive_within(state, window.after(count));
  }
  // Whether it may end here.
  bool accepts(uint32_t state, uint64_t count, const CountWindow& window) const {
    return dfa.tag(state) != 0 && count >= window.min && count <= window.max;
  }
  // How many texts within the window lead on from there, `most` at most; what kMaxVisits steps do not find does not count.
  uint32_t count_words(uint32_t state, uint64_t count, const CountWindow& window, uint32_t most) const;
  static constexpr uint64_t kMaxVisits = 4'000'000;
  // Whether more than n do.
  bool has_more_words(uint32_t state, uint64_t count, const CountWindow& window, uint32_t n) const {
    return count_words(state, count, window, n + 1) > n;
  }
  bool has_more_words(uint32_t n) const { return has_more_words(start(), 0, {}, n); }
  // The same of all texts, in time in proportion to the automaton, whatever n is.
  bool has_more_texts(uint64_t n) const;

 private:
  bool alive_within(uint32_t state, CountWindow left) const;
};

// Errors: kTooLarge.
Compiled<std::shared_ptr<const Lexeme>> make_lexeme(const CharDfa& chars, Spelling spelling,
                                                    bool with_lengths, Budget& budget);

// The lexemes that every JSON grammar shares; made once.
struct CommonLexemes {
  std::shared_ptr<const Lexeme> string;            // behind the opening quotation mark; any spelling
  std::shared_ptr<const Lexeme> canonical_string;  // one spelling
  std::shared_ptr<const Lexeme> number, integer, plain_integer;
  std::shared_ptr<const Lexeme> space;  // JSON white space, at most 16 characters
  static const CommonLexemes& get();
};

}  // namespace penstock::grammar
