// Formulas of numbers and strings as leaves of the program.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "grammar/grammar.h"
#include "grammar/matcher/program.h"
#include "grammar/regex/char_dfa.h"
#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// How values are spelled.
enum class ValueSpelling : uint8_t { kAny, kCanonical };  // canonical: one spelling for each value

class LeafMaker {
 public:
  LeafMaker(Expansion& expansion, const JsonStyle& style, Budget& budget, Program& program)
      : expansion_(expansion), style_(style), budget_(budget), program_(program) {}

  // Leaves that together are the formula's values. Errors: kTooLarge, kUnsupported; `where` is left to the caller.
  Compiled<std::vector<uint32_t>> strings(FormulaId formula, ValueSpelling spelling);
  Compiled<std::vector<uint32_t>> numbers(FormulaId formula, ValueSpelling spelling);
  // Of kNull, kFalse or kTrue.
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
  Budget& budget_;
  Program& program_;
  using Key = std::pair<FormulaId, ValueSpelling>;
  std::map<Key, std::vector<uint32_t>> strings_, numbers_;
  std::map<std::tuple<ExprId, ValueSpelling, bool>, std::shared_ptr<const Lexeme>> lexemes_;
  std::map<std::string, uint32_t, std::less<>> words_;
};

}  // namespace penstock::grammar
