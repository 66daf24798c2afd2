// Compiles formulas of numbers and strings to leaves of the program.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "grammar/program/program.h"
#include "grammar/regex/char_dfa.h"
#include "grammar/schema/expansion.h"
#include "grammar/schema/json_style.h"

namespace penstock::grammar {

// How values are spelled.
enum class ValueSpelling : uint8_t { kAny, kCanonical };  // kCanonical: one spelling for each value

// A cache of the automata of one compilation: its schemas (those of many tools, for example) often
// share patterns and ranges.
class LexemeTable {
 public:
  explicit LexemeTable(ExprPool& exprs) : exprs_(exprs) {}
  // Errors: kTooLarge, kUnsupported.
  Compiled<std::shared_ptr<const Lexeme>> text(ExprId expr, Spelling spelling, bool with_lengths,
                                               Budget& budget);
  Compiled<std::shared_ptr<const Lexeme>> number(std::vector<NumberPiece> pieces,
                                                 NumberSpelling spelling, Budget& budget);

 private:
  struct Number {
    std::vector<NumberPiece> pieces;
    NumberSpelling spelling;
    std::shared_ptr<const Lexeme> lexeme;
  };
  ExprPool& exprs_;
  std::map<std::tuple<ExprId, Spelling, bool>, std::shared_ptr<const Lexeme>> texts_;
  std::vector<Number> numbers_;  // few, so that they are searched linearly
};

class LeafMaker {
 public:
  LeafMaker(Expansion& expansion, const JsonStyle& style, LexemeTable& lexemes, Budget& budget,
            Program& program)
      : expansion_(expansion),
        style_(style),
        lexemes_(lexemes),
        budget_(budget),
        program_(program) {}

  // Return leaves whose union is the values of the formula. Errors: kTooLarge, kUnsupported; the
  // caller sets Refusal::where.
  Compiled<std::vector<uint32_t>> strings(FormulaId formula, ValueSpelling spelling);
  Compiled<std::vector<uint32_t>> numbers(FormulaId formula, ValueSpelling spelling);
  // Returns the leaf of null, false or true. REQUIRES: `type` is one of these three.
  uint32_t word(ValueType type);

 private:
  Compiled<std::vector<uint32_t>> make_strings(FormulaId formula, ValueSpelling spelling);
  Compiled<std::vector<uint32_t>> make_numbers(FormulaId formula, ValueSpelling spelling);
  Compiled<std::shared_ptr<const Lexeme>> string_lexeme(ExprId expr, ValueSpelling spelling,
                                                        bool with_lengths);
  uint32_t fixed(std::string_view text);
  uint32_t add(std::shared_ptr<const Lexeme> lexeme, const CountWindow& window);

  Expansion& expansion_;
  const JsonStyle& style_;
  LexemeTable& lexemes_;
  Budget& budget_;
  Program& program_;
  using Key = std::pair<FormulaId, ValueSpelling>;
  std::map<Key, std::vector<uint32_t>> strings_, numbers_;
  std::map<std::string, uint32_t, std::less<>> words_;
};

}  // namespace penstock::grammar
