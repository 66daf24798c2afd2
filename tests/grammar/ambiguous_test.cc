// Ambiguous grammars, nullable and left-recursive ones and rings of rules: what is taken is exactly
// the language, and what it costs is bounded by the states that there are, not by the ways to read
// the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <random>

#include "grammar/grammar.h"
#include "grammar/parts/work_meter.h"
#include "grammar/vocabulary/token_set.h"

namespace penstock::grammar {
namespace {

// --- The oracle: languages over {a, b}, all texts of up to kLongest letters one by one

constexpr int kLongest = 8;
constexpr size_t kTexts = (2 << kLongest) - 1;
using Language = std::bitset<kTexts>;

size_t begin_of(int length) { return (size_t{1} << length) - 1; }
// Texts by length, then in order: "", "a", "b", "aa", ...
size_t index_of(std::string_view text) {
  size_t letters = 0;
  for (const char c : text) letters = letters * 2 + (c == 'b' ? 1 : 0);
  return begin_of(static_cast<int>(text.size())) + letters;
}

Language operator*(const Language& left, const Language& right) {
  Language both;
  for (int n = 0; n <= kLongest; ++n) {
    for (size_t i = begin_of(n); i < begin_of(n + 1); ++i) {
      if (!left[i]) continue;
      for (int m = 0; n + m <= kLongest; ++m) {
        for (size_t j = begin_of(m); j < begin_of(m + 1); ++j) {
          if (right[j]) both.set(begin_of(n + m) + ((i - begin_of(n)) << m) + (j - begin_of(m)));
        }
      }
    }
  }
  return both;
}

struct Known {
  Language texts, beginnings;
  bool any = false;  // there are texts, perhaps only longer ones
  bool operator==(const Known&) const = default;
};

constexpr int kEndless = -1;

struct Node {
  enum Kind { kText, kRule, kSequence, kChoice, kRepeat } kind;
  std::string text;
  size_t rule = 0;
  std::vector<Node> parts;
  int min = 0, max = kEndless;
};

class Oracle {
 public:
  explicit Oracle(const std::vector<Node>& rules) : known_(rules.size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules.size(); ++i) {
        const Known next = of(rules[i]);
        changed |= !(next == known_[i]);
        known_[i] = next;
      }
    }
  }
  const Known& root() const { return known_[0]; }

 private:
  static Known empty() {
    Known known;
    known.texts.set(0);
    known.beginnings.set(0);
    known.any = true;
    return known;
  }
  static Known sequence(const Known& a, const Known& b) {
    if (!a.any || !b.any) return {};
    return {a.texts * b.texts, a.beginnings | a.texts * b.beginnings, true};
  }
  static Known either(const Known& a, const Known& b) {
    return {a.texts | b.texts, a.beginnings | b.beginnings, a.any || b.any};
  }
  Known repeat(const Node& node) const {
    const Known part = of(node.parts[0]);
    Known all = node.min == 0 ? empty() : Known{}, rounds = empty();
    for (int n = 1; node.max == kEndless || n <= node.max; ++n) {
      rounds = sequence(rounds, part);
      const Known before = all;
      if (n >= node.min) all = either(all, rounds);
      if (n > node.min && all == before) break;
    }
    return all;
  }
  Known of(const Node& node) const {
    Known known;
    switch (node.kind) {
      case Node::kText:
        known.texts.set(index_of(node.text));
        for (size_t n = 0; n <= node.text.size(); ++n)
          known.beginnings.set(index_of(node.text.substr(0, n)));
        known.any = true;
        return known;
      case Node::kRule: return known_[node.rule];
      case Node::kRepeat: return repeat(node);
      case Node::kSequence:
        known = empty();
        for (const Node& part : node.parts) known = sequence(known, of(part));
        return known;
      case Node::kChoice:
        for (const Node& part : node.parts) known = either(known, of(part));
        return known;
    }
    return known;
  }
  std::vector<Known> known_;
};

// --- Random grammars

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}
  std::vector<Node> rules() {
    n_rules_ = 1 + below(4);
    std::vector<Node> rules;
    for (size_t i = 0; i < n_rules_; ++i) {
      Node rule{Node::kChoice};
      for (size_t n = 1 + below(3); n > 0; --n) rule.parts.push_back(sequence(2));
      rules.push_back(std::move(rule));
    }
    return rules;
  }
  size_t below(size_t n) { return random_() % n; }

 private:
  Node sequence(int depth) {
    Node node{Node::kSequence};
    for (size_t n = below(4); n > 0; --n) node.parts.push_back(part(depth));
    return node;
  }
  Node part(int depth) {
    const size_t what = below(depth > 0 ? 10 : 6);
    if (what < 3) return {Node::kText, std::vector<std::string>{"a", "b", "ab"}[what]};
    if (what < 6) return {Node::kRule, "", below(n_rules_)};
    if (what == 6) return {Node::kChoice, "", 0, {sequence(depth - 1), sequence(depth - 1)}};
    constexpr std::pair<int, int> kCounts[] = {
        {0, kEndless}, {1, kEndless}, {0, 1}, {2, 3}, {0, 70}};
    const auto [min, max] = kCounts[below(std::size(kCounts))];
    return {Node::kRepeat, "", 0, {part(depth - 1)}, min, max};
  }
  std::mt19937 random_;
  size_t n_rules_ = 0;
};

enum class Notation { kGbnf, kLark };

std::string written(const Node& node, Notation notation) {
  std::string text;
  switch (node.kind) {
    case Node::kText: return "\"" + node.text + "\"";
    case Node::kRule:
      return node.rule == 0 ? (notation == Notation::kLark ? "start" : "root")
                            : "r" + std::to_string(node.rule);
    case Node::kSequence:
      for (const Node& part : node.parts) text += written(part, notation) + " ";
      return text.empty() ? "\"\"" : text;
    case Node::kChoice:
      for (const Node& part : node.parts)
        text += (text.empty() ? "" : "| ") + written(part, notation) + " ";
      return "( " + text + ")";
    case Node::kRepeat:
      text = "( " + written(node.parts[0], notation) + " )";
      if (node.max == 1) return text + "?";
      if (node.max == kEndless) return text + (node.min == 0 ? "*" : "+");
      return text + "{" + std::to_string(node.min) + "," + std::to_string(node.max) + "}";
  }
  return text;
}

std::string written(const std::vector<Node>& rules, Notation notation) {
  std::string text;
  for (size_t i = 0; i < rules.size(); ++i) {
    text += written(Node{Node::kRule, "", i}, notation) +
            (notation == Notation::kLark ? ": " : " ::= ") + written(rules[i], notation) + "\n";
  }
  return text;
}

// Every text of one to seven letters is a token, so that there are large subtrees and tokens of
// many readings.
std::shared_ptr<const Vocabulary> letters() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens{""};
    for (size_t i = 0; tokens.back().size() < 7 || tokens.back() != "bbbbbbb"; ++i) {
      tokens.push_back(tokens[i] + "a");
      tokens.push_back(tokens[i] + "b");
    }
    tokens.emplace_back();
    const auto end = static_cast<TokenId>(tokens.size() - 1);
    return Vocabulary::make(std::move(tokens), {end});
  }();
  return vocabulary;
}

// Tokens of up to six letters c beside others.
std::shared_ptr<const Vocabulary> letters_and_c() {
  return Vocabulary::make({"a", "b", "c", "cc", "ccc", "cccc", "ccccc", "cccccc", "(", ")", ""},
                          {10});
}

class RandomGrammars : public testing::TestWithParam<Notation> {};

void expect_language(Matcher& matcher, const std::string& text, const Known& known) {
  ASSERT_EQ(matcher.may_end(), known.texts[index_of(text)]) << "behind \"" << text << "\"";
  const Vocabulary& vocabulary = matcher.grammar().vocabulary();
  std::vector<uint32_t> mask(vocabulary.mask_words());
  matcher.fill_mask(mask);
  if (!matcher.failure().empty()) return;
  for (TokenId token = 1; token + 1 < vocabulary.size(); ++token) {
    const std::string longer = text + std::string(vocabulary.bytes(token));
    if (longer.size() > kLongest) continue;
    ASSERT_EQ(has_bit(mask, token), known.beginnings[index_of(longer)])
        << "\"" << longer << "\" behind \"" << text << "\"";
  }
}

TEST_P(RandomGrammars, TakeTheirLanguageWithinTheirWork) {
  constexpr uint64_t kUsual = 50'000;  // operations of a step
  Generator generator(11);
  int n_with_text = 0, n_steps = 0, n_costly = 0, n_given_up = 0;
  for (int i = 0; i < 150; ++i) {
    const std::vector<Node> rules = generator.rules();
    const std::string text = written(rules, GetParam());
    SCOPED_TRACE(text);
    const Known known = Oracle(rules).root();
    const auto grammar = Grammar::compile({SpecKind::kGrammar, text}, letters());
    ASSERT_EQ(grammar.has_value(), known.any) << (grammar ? "" : grammar.error().message);
    if (!grammar) continue;
    ++n_with_text;
    for (int walk = 0; walk < 3; ++walk) {
      Matcher matcher(*grammar);
      std::string so_far;
      uint64_t before = 0;
      for (int step = 0; step < 4; ++step) {
        ASSERT_NO_FATAL_FAILURE(expect_language(matcher, so_far, known));
        const std::string longer = so_far + (generator.below(2) == 0 ? "a" : "b");
        const bool taken = matcher.append_bytes(longer.substr(so_far.size()));
        if (!matcher.failure().empty()) {
          ++n_given_up;
          break;
        }
        ASSERT_EQ(taken, known.beginnings[index_of(longer)]) << longer;
        if (taken) so_far = longer;
        ++n_steps;
        n_costly += matcher.work() - before > kUsual ? 1 : 0;
        before = matcher.work();
      }
    }
  }
  EXPECT_GT(n_with_text, 100);
  EXPECT_LT(n_costly * 10, n_steps);
  EXPECT_LT(n_given_up * 50, n_steps / 4);
}

INSTANTIATE_TEST_SUITE_P(Notations, RandomGrammars,
                         testing::Values(Notation::kGbnf, Notation::kLark), [](const auto& info) {
                           return info.param == Notation::kGbnf ? "Gbnf" : "Lark";
                         });

// --- Long texts

struct Attack {
  const char* name;
  std::string grammar, text;  // the text again and again
};

std::string ring(int n) {
  std::string text = "root ::= a0\n";
  for (int i = 0; i < n; ++i) {
    text += "a" + std::to_string(i) + " ::= a" + std::to_string((i + 1) % n) + "* \"c\" | a" +
            std::to_string((i + 2) % n) + "\n";
  }
  return text;
}

std::vector<Attack> attacks() {
  return {
      {"regular expressions", "root ::= e\ne ::= e e | e \"*\" | \"(\" e \")\" | [a-z]*", "ab*(c)"},
      {"regular expressions in Lark", "start: e\ne: e e | e \"*\" | \"(\" e \")\" | /[a-z]*/",
       "ab*(c)"},
      {"sums", "root ::= e\ne ::= e \"+\" e | e \"*\" e | \"(\" e \")\" | [a-z]+", "ab+(c*d)*"},
      {"juxtaposed", "root ::= s\ns ::= s s | \"a\"", "a"},
      {"thrice", "root ::= s\ns ::= s s s | s s | \"a\" | \"\"", "a"},
      {"words of words", "root ::= w+\nw ::= v+\nv ::= [a-z]+", "abc"},
      {"ring of four", ring(4), "c"},
      {"hidden left recursion", "root ::= n root \"a\" | \"a\"\nn ::= \"b\"* n |", "a"},
  };
}

// Without end, at a cost that does not grow. Where any number of ends is open at once, it grows
// with their number.
TEST(AmbiguousTexts, CostTheSameForEveryToken) {
  for (const Attack& attack : attacks()) {
    SCOPED_TRACE(attack.name);
    const auto grammar = Grammar::compile({SpecKind::kGrammar, attack.grammar}, letters());
    ASSERT_TRUE(grammar) << grammar.error().message;
    Matcher matcher(*grammar);
    std::vector<uint32_t> mask(letters()->mask_words());
    uint64_t most_of_first = 0, most = 0;
    for (int i = 0; i < 200; ++i) {
      const uint64_t before = matcher.work();
      matcher.fill_mask(mask);
      ASSERT_TRUE(matcher.append_bytes(attack.text)) << i << " " << matcher.failure();
      most = std::max(most, matcher.work() - before);
      if (i == 20) most_of_first = most;
    }
    EXPECT_LE(most, 2 * most_of_first);
    EXPECT_LT(most, 50'000U);
  }
}

// What takes too much ends with the reason, whatever is asked then.
TEST(AmbiguousTexts, EndWithTheReasonWhereTheyTakeTooMuch) {
  const auto vocabulary = letters_and_c();
  const auto grammar = Grammar::compile({SpecKind::kGrammar, ring(40)}, vocabulary);
  ASSERT_TRUE(grammar) << grammar.error().message;
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  int n = 0;
  for (; n < 1000 && matcher.failure().empty(); ++n) {
    matcher.fill_mask(mask);
    matcher.append_bytes("c");
  }
  ASSERT_LT(n, 1000);
  EXPECT_NE(matcher.failure().find("too much work to follow"), std::string::npos)
      << matcher.failure();
  EXPECT_LT(matcher.work(), WorkMeter::kMost + 1001 * WorkMeter::kPerToken + WorkMeter::kMost);
  matcher.fill_mask(mask);
  EXPECT_EQ(std::count(mask.begin(), mask.end(), 0U), static_cast<ptrdiff_t>(mask.size()));
  EXPECT_FALSE(matcher.append_bytes("c"));
  std::string forced;
  matcher.forced_bytes(forced);
  EXPECT_EQ(forced, "");
  Matcher fork(matcher);
  EXPECT_EQ(fork.failure(), matcher.failure());
  matcher.rollback(matcher.n_appended());
  EXPECT_NE(matcher.failure(), "");
}

// Also behind twenty thousand open brackets.
TEST(AmbiguousTexts, HaveAShortestEndingHoweverDeep) {
  const auto grammar = Grammar::compile(
      {SpecKind::kGrammar, "root ::= e\ne ::= \"(\" e \")\" | e e | \"x\""}, letters());
  ASSERT_TRUE(grammar);
  Matcher matcher(*grammar);
  constexpr int kDepth = 20'000;
  for (int i = 0; i < kDepth; ++i) ASSERT_TRUE(matcher.append_bytes("(")) << matcher.failure();
  EXPECT_EQ(matcher.shortest_ending(), kDepth + 1U);
  ASSERT_TRUE(matcher.append_bytes("x"));
  EXPECT_EQ(matcher.shortest_ending(), static_cast<uint64_t>(kDepth));
}

}  // namespace
}  // namespace penstock::grammar
