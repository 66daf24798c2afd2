#include "grammar/grammar.h"

#include <fmt/format.h>

#include "grammar/matcher/mask_builder.h"
#include "grammar/matcher/shortest_ending.h"
#include "grammar/regex/parser.h"
#include "grammar/schema/goals.h"
#include "grammar/syntax/notation.h"
#include "grammar/syntax/structural_tag.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaskMemory = 16 << 20;

// The shared state of one compilation.
struct Compilation {
  Compilation(const GrammarSpec& asked, const Vocabulary* of, const CompileLimits& limits)
      : spec(asked), vocabulary(of), budget(limits), pool(limits.max_expr_nodes) {}

  // Sets the program's root to a rule.
  Compiled<void> root(Rules& rules, uint32_t rule) {
    auto symbol = add_rules(rules, rule, program, budget);
    if (!symbol) return tl::unexpected(std::move(symbol).error());
    program.root = *symbol;
    return {};
  }

  Compiled<void> regex() {
    auto expr = parse_regex(pool, spec.text, RegexScope::kWhole,
                            static_cast<int>(budget.limits().max_depth));
    if (!expr) return tl::unexpected(std::move(expr).error());
    Rules rules(pool);
    return root(rules, rules.anonymous(rules.text(*expr)));
  }

  Compiled<void> grammar() {
    Rules rules(pool);
    auto rule = parse_rules(spec.text, rules, goal_of_schema(), vocabulary, budget);
    if (!rule) return tl::unexpected(std::move(rule).error());
    return root(rules, *rule);
  }

  // Sets the lexeme of the white space between JSON tokens.
  Compiled<void> set_space() {
    const JsonStyle& style = spec.json;
    const bool by_pattern =
        style.whitespace != WhiteSpace::kNone && !style.whitespace_pattern.empty();
    program.space = CommonLexemes::get().space;
    if (style.whitespace == WhiteSpace::kAny && !by_pattern) return {};
    program.space_behind_marks = style.whitespace == WhiteSpace::kOneLine && !by_pattern;
    const std::string_view pattern = by_pattern ? std::string_view(style.whitespace_pattern)
                                     : program.space_behind_marks ? " ?"
                                                                  : "";
    auto expr =
        parse_regex(pool, pattern, RegexScope::kWhole, static_cast<int>(budget.limits().max_depth));
    if (!expr) return tl::unexpected(std::move(expr).error());
    const ExprId json_space = pool.star(pool.chars({{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}}));
    auto chars = make_dfa(pool, pool.all_of({*expr, json_space}), budget);
    if (!chars) return tl::unexpected(std::move(chars).error());
    auto lexeme = make_lexeme(*chars, Spelling::kUtf8, false, budget);
    if (!lexeme) return tl::unexpected(std::move(lexeme).error());
    if ((*lexeme)->empty())
      return refuse(RefusalKind::kInvalid, "#",
                    "the pattern of white space allows no white space of JSON, nor none");
    program.space = *std::move(lexeme);
    return {};
  }

  Compiled<JsonValue> json(std::string_view text) {
    return parse_json(text, static_cast<int>(budget.limits().max_depth),
                      budget.limits().max_values);
  }

  // Returns the goal of a schema. REQUIRES: the document outlives the call.
  Compiled<uint32_t> goal(const JsonValue& document, JsonStyle style) {
    const size_t n_notes = notes.size();
    auto found = goal_of(document, style);
    if (found || !style.closed_objects) return found;
    notes.resize(n_notes);
    style.closed_objects = false;
    auto open = goal_of(document, style);
    if (!open) return found;
    notes.push_back({"#", "objects stay open to members that no schema names: " +
                              found.error().where + ": " + found.error().message});
    return open;
  }
  Compiled<uint32_t> goal_of(const JsonValue& document, const JsonStyle& style) {
    SchemaReader schemas(document, style, regexes, budget, notes);
    if (auto done = schemas.read(); !done) return tl::unexpected(std::move(done).error());
    return GoalMaker(schemas, pool, style, lexemes, budget, program).run();
  }

  GoalOfSchema goal_of_schema() {
    return [this](const JsonValue& value, bool python_words) {
      JsonStyle style = spec.json;
      style.python_words = python_words;
      return goal(value, style);
    };
  }

  Compiled<void> schema(std::string_view text) {
    auto document = json(text);
    if (!document) return tl::unexpected(std::move(document).error());
    auto found = goal(*document, spec.json);
    if (!found) return tl::unexpected(std::move(found).error());
    Rules rules(pool);
    return root(rules, rules.anonymous(rules.goal(*found)));
  }

  Compiled<void> structural_tag() {
    auto document = json(spec.text);
    if (!document) return tl::unexpected(std::move(document).error());
    Rules rules(pool);
    auto rule = parse_structural_tag(*document, rules, goal_of_schema(), vocabulary, budget);
    if (!rule) return tl::unexpected(std::move(rule).error());
    return root(rules, *rule);
  }

  Compiled<void> choice() {
    auto document = json(spec.text);
    if (!document) return tl::unexpected(std::move(document).error());
    std::vector<std::u32string> texts;
    for (const JsonMember& member : document->members) {
      if (!member.value.is_string() || !unicode::is_valid(member.value.string))
        return refuse(RefusalKind::kInvalid, "#", "a choice is a list of texts");
      texts.push_back(characters_of(member.value.string));
    }
    if (!document->is_array() || texts.empty())
      return refuse(RefusalKind::kInvalid, "#", "a choice is a list of texts, one at least");
    Rules rules(pool);
    return root(rules, rules.anonymous(rules.text(pool.any_literal(std::move(texts)))));
  }

  Compiled<void> run() {
    if (spec.text.size() > budget.limits().max_text_bytes) {
      return too_large(fmt::format("{} bytes: at most {} are compiled", spec.text.size(),
                                   budget.limits().max_text_bytes));
    }
    if (auto done = set_space(); !done) return done;
    switch (spec.kind) {
      case SpecKind::kRegex: return regex();
      case SpecKind::kGrammar: return grammar();
      case SpecKind::kJsonSchema: return schema(spec.text);
      case SpecKind::kJsonObject: return schema(R"({"type": "object"})");
      case SpecKind::kStructuralTag: return structural_tag();
      case SpecKind::kChoice: return choice();
    }
    return refuse(RefusalKind::kUnsupported, "#", "no such kind of specification");
  }

  const GrammarSpec& spec;
  const Vocabulary* vocabulary;
  Budget budget;
  ExprPool pool;
  RegexTable regexes{pool, static_cast<int>(budget.limits().max_depth)};
  LexemeTable lexemes{pool};
  Program program;
  std::vector<Note> notes;
};

}  // namespace

struct Grammar::Caches {
  explicit Caches(size_t max_memory) : masks(max_memory) {}
  MaskCache masks;
  std::vector<std::shared_ptr<LexemeMasks>> leaves, other_keys;
  std::once_flag endings_made;
  std::unique_ptr<const ShortestEndings> endings;
};

Grammar::Grammar(Program program, std::vector<Note> notes,
                 std::shared_ptr<const Vocabulary> vocabulary)
    : program_(std::make_unique<Program>(std::move(program))),
      notes_(std::move(notes)),
      vocabulary_(std::move(vocabulary)),
      caches_(std::make_unique<Caches>(kMaskMemory)) {
  if (vocabulary_ == nullptr) return;
  LexemeMaskRegistry& registry = vocabulary_->lexeme_masks();
  for (const Leaf& leaf : program_->leaves)
    caches_->leaves.push_back(registry.of(leaf.lexeme, *vocabulary_));
  for (const ObjectGraph& graph : program_->objects) {
    caches_->other_keys.push_back(
        graph.other_keys == nullptr ? nullptr : registry.of(graph.other_keys, *vocabulary_));
  }
  masks_ = std::make_unique<MaskSource>(
      MaskSource{*program_, *vocabulary_, caches_->masks, caches_->leaves, caches_->other_keys});
}

Grammar::~Grammar() = default;

const ShortestEndings& Grammar::endings() const {
  std::call_once(caches_->endings_made,
                 [this] { caches_->endings = std::make_unique<ShortestEndings>(*program_); });
  return *caches_->endings;
}

size_t Grammar::memory() const {
  size_t bytes = sizeof(Grammar) + memory_of(*program_) + caches_->masks.memory();
  for (const auto* lists : {&caches_->leaves, &caches_->other_keys}) {
    for (const auto& masks : *lists) bytes += masks != nullptr ? masks->memory() : 0;
  }
  return bytes;
}

Compiled<std::shared_ptr<const Grammar>> Grammar::compile(
    const GrammarSpec& spec, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits, uint64_t* steps) {
  Compilation compilation(spec, vocabulary.get(), limits);
  auto done = compilation.run();
  if (steps != nullptr) *steps = compilation.budget.steps();
  if (!done) return tl::unexpected(std::move(done).error());
  find_returns(compilation.program);
  return std::shared_ptr<const Grammar>(new Grammar(
      std::move(compilation.program), std::move(compilation.notes), std::move(vocabulary)));
}

}  // namespace penstock::grammar
