// A lexeme (terminal): the texts that an automaton over bytes accepts; the number of their
// characters may be bounded.
#pragma once
#include <memory>

#include "grammar/lexer/byte_dfa.h"
#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/number_dfa.h"
#include "grammar/lexer/spelling.h"

namespace penstock::grammar {

// Immutable, so that grammars share it.
struct Lexeme {
  ByteDfa dfa;
  // of the automaton over characters; empty unless windows are used
  CompletionLengths lengths;
  // Accepting states are those after the closing quotation mark, from which no edges lead.
  bool quoted = false;
  // The lexeme contains every text, so that only a window bounds it.
  bool any_content = false;

  uint32_t start() const { return dfa.start(); }
  bool empty() const { return dfa.start() == ByteDfa::kDead; }

  // Whether a text that is in `state` after `count` whole characters can still be completed within
  // the window.
  bool alive(uint32_t state, uint64_t count, const CountWindow& window) const {
    if (state == ByteDfa::kDead || count > window.max) return false;
    return window.trivial() || alive_within(state, window.after(count));
  }
  // Whether the text may end in `state` after `count` whole characters.
  bool accepts(uint32_t state, uint64_t count, const CountWindow& window) const {
    return dfa.tag(state) != 0 && count >= window.min && count <= window.max;
  }
  // Returns the number of completions from `state` within the window, at most `most`; those that
  // are not found in kMaxVisits steps are not counted.
  uint32_t count_words(uint32_t state, uint64_t count, const CountWindow& window,
                       uint32_t most) const;
  static constexpr uint64_t kMaxVisits = 4'000'000;
  // Whether there are more than n completions, counted as count_words() does.
  bool has_more_words(uint32_t state, uint64_t count, const CountWindow& window, uint32_t n) const {
    return count_words(state, count, window, n + 1) > n;
  }
  bool has_more_words(uint32_t n) const { return has_more_words(start(), 0, {}, n); }
  // Whether the lexeme has more than n texts, in time proportional to the automaton for any n.
  bool has_more_texts(uint64_t n) const;

 private:
  bool alive_within(uint32_t state, CountWindow left) const;
};

// Errors: kTooLarge.
Compiled<std::shared_ptr<const Lexeme>> make_lexeme(const CharDfa& chars, Spelling spelling,
                                                    bool with_lengths, Budget& budget);

// The lexemes that all JSON grammars share.
struct CommonLexemes {
  // string after the opening quotation mark, in any spelling
  std::shared_ptr<const Lexeme> string;
  std::shared_ptr<const Lexeme> canonical_string;  // as `string`, only the canonical spelling
  std::shared_ptr<const Lexeme> number, integer, plain_integer;
  std::shared_ptr<const Lexeme> space;  // JSON white space, at most 16 characters
  static const CommonLexemes& get();
};

}  // namespace penstock::grammar
