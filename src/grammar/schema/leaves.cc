#include "grammar/schema/leaves.h"

#include <algorithm>

#include "grammar/schema/membership.h"
#include "grammar/schema/scalars.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxKnownNumbers = 64;
// digits of a listed number with several spellings
constexpr size_t kMaxValueDigits = 300;

// Pieces and listed values of a formula's alternatives.
struct Values {
  std::vector<const JsonValue*> listed;
  std::vector<FormulaId> others;
};

std::optional<Values> values_of(Expansion& expansion, FormulaId formula) {
  const auto alternatives = without_choices_of_values(expansion.pool(), formula);
  if (!alternatives) return std::nullopt;
  Values result;
  for (const FormulaId alternative : *alternatives) {
    const auto* list = listed_values(expansion.pool(), alternative);
    if (list == nullptr) {
      result.others.push_back(alternative);
      continue;
    }
    const std::vector<const JsonValue*> values = *list;  // a copy: the pool grows
    for (const JsonValue* value : values) {
      if (holds(expansion, alternative, *value)) result.listed.push_back(value);
    }
  }
  return result;
}

tl::unexpected<Refusal> too_many() { return too_large("too many alternatives about one value"); }

}  // namespace

Compiled<std::shared_ptr<const Lexeme>> LexemeTable::text(ExprId expr, Spelling spelling,
                                                          bool with_lengths, Budget& budget) {
  auto& known = texts_[{expr, spelling, with_lengths}];
  if (known != nullptr) return known;
  auto chars = make_dfa(exprs_, expr, budget);
  if (!chars) return tl::unexpected(std::move(chars).error());
  auto made = make_lexeme(*chars, spelling, with_lengths, budget);
  if (made) known = *made;
  return made;
}

Compiled<std::shared_ptr<const Lexeme>> LexemeTable::number(std::vector<NumberPiece> pieces,
                                                            NumberSpelling spelling,
                                                            Budget& budget) {
  for (const Number& known : numbers_) {
    if (known.spelling == spelling && known.pieces == pieces) return known.lexeme;
  }
  auto dfa = make_number_dfa(pieces, spelling, budget);
  if (!dfa) return tl::unexpected(std::move(dfa).error());
  auto lexeme = std::make_shared<Lexeme>();
  lexeme->dfa = *std::move(dfa);
  if (numbers_.size() < kMaxKnownNumbers) numbers_.push_back({std::move(pieces), spelling, lexeme});
  return std::shared_ptr<const Lexeme>(std::move(lexeme));
}

uint32_t LeafMaker::add(std::shared_ptr<const Lexeme> lexeme, const CountWindow& window) {
  program_.leaves.push_back({std::move(lexeme), window});
  return static_cast<uint32_t>(program_.leaves.size() - 1);
}

uint32_t LeafMaker::word(ValueType type) {
  const bool python = style_.python_words;
  const std::string_view text = type == ValueType::kNull    ? python ? "None" : "null"
                                : type == ValueType::kFalse ? python ? "False" : "false"
                                : python                    ? "True"
                                                            : "true";
  return fixed(text);
}

uint32_t LeafMaker::fixed(std::string_view text) {
  if (const auto it = words_.find(text); it != words_.end()) return it->second;
  auto lexeme = std::make_shared<Lexeme>();
  lexeme->dfa = make_literal_dfa({{std::string(text), 1}});
  return words_[std::string(text)] = add(std::move(lexeme), {});
}

Compiled<std::vector<uint32_t>> LeafMaker::strings(FormulaId formula, ValueSpelling spelling) {
  const Key key{formula, spelling};
  if (const auto it = strings_.find(key); it != strings_.end()) return it->second;
  auto made = make_strings(formula, spelling);
  if (made) strings_.emplace(key, *made);
  return made;
}

Compiled<std::vector<uint32_t>> LeafMaker::make_strings(FormulaId formula, ValueSpelling spelling) {
  const auto values = values_of(expansion_, formula);
  if (!values) return too_many();
  std::vector<TextConstraint> pieces;
  for (const FormulaId other : values->others) {
    auto texts = text_pieces(expansion_, other);
    if (!texts) return too_many();
    pieces.insert(pieces.end(), texts->begin(), texts->end());
  }
  std::vector<std::u32string> texts;
  for (const JsonValue* value : values->listed) {
    if (unicode::is_valid(value->string)) texts.push_back(characters_of(value->string));
  }
  if (!texts.empty()) pieces.push_back({expansion_.exprs().any_literal(std::move(texts))});
  std::vector<uint32_t> leaves;
  for (const TextConstraint& piece : pieces) {
    const bool windowed = !piece.length.trivial();
    auto lexeme = string_lexeme(piece.expr, spelling, windowed);
    if (!lexeme) return tl::unexpected(std::move(lexeme).error());
    const bool possible =
        !(*lexeme)->empty() && (*lexeme)->alive((*lexeme)->start(), 0, piece.length);
    if (possible) leaves.push_back(add(*std::move(lexeme), piece.length));
  }
  return leaves;
}

Compiled<std::shared_ptr<const Lexeme>> LeafMaker::string_lexeme(ExprId expr,
                                                                 ValueSpelling spelling,
                                                                 bool with_lengths) {
  const bool canonical = spelling == ValueSpelling::kCanonical;
  if (expr == ExprPool::kEverything && (canonical || !style_.all_escapes)) {
    return canonical ? CommonLexemes::get().canonical_string : CommonLexemes::get().string;
  }
  const Spelling json = canonical            ? Spelling::kJsonCanonical
                        : style_.all_escapes ? Spelling::kJsonAllEscapes
                                             : Spelling::kJson;
  return lexemes_.text(expr, json, with_lengths, budget_);
}

Compiled<std::vector<uint32_t>> LeafMaker::numbers(FormulaId formula, ValueSpelling spelling) {
  const Key key{formula, spelling};
  if (const auto it = numbers_.find(key); it != numbers_.end()) return it->second;
  auto made = make_numbers(formula, spelling);
  if (made) numbers_.emplace(key, *made);
  return made;
}

Compiled<std::vector<uint32_t>> LeafMaker::make_numbers(FormulaId formula, ValueSpelling spelling) {
  const auto values = values_of(expansion_, formula);
  if (!values) return too_many();
  std::vector<NumberPiece> pieces;
  for (const FormulaId other : values->others) {
    auto some = number_pieces(expansion_.pool(), other);
    if (!some) return too_many();
    pieces.insert(pieces.end(), some->begin(), some->end());
  }
  std::vector<uint32_t> leaves;
  std::vector<std::string> others;
  for (const JsonValue* value : values->listed) {
    if (spelling == ValueSpelling::kAny) {
      for (std::string& text : value->number.texts_of_programs()) others.push_back(std::move(text));
    }
    if (value->number.n_digits() <= kMaxValueDigits) {
      pieces.push_back({.low = NumberBound{value->number}, .high = NumberBound{value->number}});
    } else {
      leaves.push_back(fixed(value->number.text()));
    }
  }
  for (const std::string& text : others) leaves.push_back(fixed(text));
  if (pieces.empty()) return leaves;
  const CommonLexemes& common = CommonLexemes::get();
  const bool any = spelling == ValueSpelling::kAny && pieces.size() == 1;
  if (any && pieces.front() == NumberPiece{}) {
    leaves.push_back(add(common.number, {}));
  } else if (any && pieces.front() == NumberPiece{.multiples_of = {1}}) {
    leaves.push_back(add(common.integer, {}));
  } else if (any && pieces.front() == NumberPiece{.multiples_of = {1}, .digits_only = true}) {
    leaves.push_back(add(common.plain_integer, {}));
  } else {
    const NumberSpelling as =
        spelling == ValueSpelling::kAny ? NumberSpelling::kAny : NumberSpelling::kCanonical;
    auto lexeme = lexemes_.number(std::move(pieces), as, budget_);
    if (!lexeme) return tl::unexpected(std::move(lexeme).error());
    if (!(*lexeme)->empty()) leaves.push_back(add(*std::move(lexeme), {}));
  }
  return leaves;
}

}  // namespace penstock::grammar
