// Masks, steps, rollback and forks agree with each other, whatever the grammar; no walk ends in a
// dead end.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "grammar/grammar.h"
#include "grammar/matcher/shortest_ending.h"
#include "grammar/vocabulary/token_set.h"
#include "small_vocabulary.h"

namespace penstock::grammar {
namespace {

std::shared_ptr<const Grammar> compiled(SpecKind kind, std::string text,
                                        bool any_member_order = false) {
  auto grammar = Grammar::compile({kind, std::move(text), {.any_member_order = any_member_order}},
                                  small_vocabulary());
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().message);
  return grammar ? *grammar : nullptr;
}

std::vector<uint32_t> mask_of(Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<uint32_t> mask(vocabulary.mask_words(), 0xFFFFFFFF);
  matcher.fill_mask(mask);
  return mask;
}

std::vector<TokenId> tokens_in(const std::vector<uint32_t>& mask, const Vocabulary& vocabulary) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    if (has_bit(mask, token)) tokens.push_back(token);
  }
  return tokens;
}

struct Specimen {
  const char* name;
  SpecKind kind;
  const char* text;
  bool any_member_order = false;
};
void PrintTo(const Specimen& specimen, std::ostream* out) { *out << specimen.name; }

constexpr Specimen kSpecimens[] = {
    {"anything", SpecKind::kJsonSchema, "true"},
    {"object", SpecKind::kJsonObject, ""},
    {"members", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"name":{"type":"string","maxLength":3},"kind":{"enum":["a","ab"]}},"required":["kind"],"additionalProperties":{"type":"boolean"}})"},
    {"counted", SpecKind::kJsonSchema,
     R"({"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"integer","minimum":-12,"maximum":123}})"},
    {"windows", SpecKind::kJsonSchema,
     R"({"type":"array","items":{"type":"string","minLength":3,"maxLength":3},"minItems":1,"maxItems":1000000000})"},
    {"unique", SpecKind::kJsonSchema,
     R"({"type":"array","uniqueItems":true,"minItems":3,"items":{"enum":["a","ab","abc",12,true]}})"},
    {"set", SpecKind::kJsonSchema,
     R"({"type":"array","uniqueItems":true,"minItems":1,"items":{"type":["string","integer","null"],"maxLength":9}})"},
    {"map", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"":{},"a":{"type":"null"}},"patternProperties":{"^b":{"const":"long"}},"additionalProperties":{"type":"boolean"},"minProperties":1,"required":["a"]})"},
    {"few keys", SpecKind::kJsonSchema,
     R"({"type":"object","propertyNames":{"enum":["a","ab","abc"]},"minProperties":3,"additionalProperties":{"type":"null"}})"},
    {"a key that has no value", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"kind":{"type":"array","items":false,"minItems":1}},"propertyNames":{"enum":["b","kind"]}})"},
    {"recursive", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"$ref":"#"},"b":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false})"},
    {"depending", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{},"ab":{"type":"null"},"abc":{"const":1}},"dependentRequired":{"a":["abc"]},"oneOf":[{"required":["a"]},{"required":["ab"]}]})"},
    {"members in any order", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"null"},"ab":{"enum":["a",1]},"abc":{}},"required":["ab"],"additionalProperties":{"type":"boolean"}})",
     true},
    {"depending in any order", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{},"ab":{"type":"null"},"abc":{"const":{"a":1,"b":[2]}}},"dependentRequired":{"a":["abc"]},"oneOf":[{"required":["a"]},{"required":["ab"]}],"patternProperties":{"^b":{"type":"integer"}}})",
     true},
    {"few keys in any order", SpecKind::kJsonSchema,
     R"({"type":"object","properties":{"ab":{"type":"null"}},"propertyNames":{"enum":["a","ab","abc"]},"required":["abc"],"additionalProperties":{"type":"null"}})",
     true},
    {"contains", SpecKind::kJsonSchema,
     R"({"type":"array","items":{"type":["integer","string"]},"contains":{"const":12},"minContains":2,"maxContains":2})"},
    {"regex", SpecKind::kRegex, R"((ab|a)*(?:[^\x00-\x7F]{2}|12+)?)"},
    {"rules", SpecKind::kGrammar,
     "root ::= \"{\" pair (\",\" pair)* \"}\" | list{2}\npair ::= [a-c]+ \":\" list\nlist ::= "
     "\"[\" (list | \"12\"){0,3} \"]\""},
    {"left recursion", SpecKind::kGrammar,
     "root ::= sum\nsum ::= sum \"+\" term | term\nterm ::= term \"*\" [0-9] | \"(\" sum \")\" | "
     "[0-9]"},
    {"ambiguous", SpecKind::kGrammar, "root ::= x x x\nx ::= \"a\" | \"ab\" | \"b\" x | \"\""},
    {"tokens", SpecKind::kGrammar, "root ::= (<|call|> \"a\"* | <[257]>)+"},
    {"lark", SpecKind::kGrammar,
     "start: \"{\" [pair (\",\" pair)*] \"}\" | <|call|> item{\"a\"}+\npair: KEY \":\" (pair | "
     "%json "
     "{\"type\": \"integer\"})\n"
     "item{x}: x | \"[\" item{x} \"]\"\nKEY: /[a-c]+/\n%ignore /[ \\n]{1,2}/"},
    {"tags", SpecKind::kStructuralTag,
     R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["{\""],"tags":[{"begin":"{\"a","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"}}"}]}})"},
    {"choice", SpecKind::kChoice, R"(["a","abc","null"])"},
};

// Several items or keys that must all differ have to come.
bool has_unknown_ending(const Specimen& specimen) {
  const std::string_view name = specimen.name;
  return specimen.any_member_order || name == "unique" || name == "few keys";
}

class MatcherWalks : public testing::TestWithParam<Specimen> {};

// From every state that a random walk meets, the mask has exactly the tokens that are taken.
TEST_P(MatcherWalks, MasksAreWhatIsTaken) {
  const auto grammar = compiled(GetParam().kind, GetParam().text, GetParam().any_member_order);
  ASSERT_NE(grammar, nullptr);
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::mt19937 random(7);
  for (int walk = 0; walk < 12; ++walk) {
    Matcher matcher(grammar);
    for (int step = 0; step < 40 && !matcher.ended(); ++step) {
      const auto mask = mask_of(matcher, vocabulary);
      const auto allowed = tokens_in(mask, vocabulary);
      ASSERT_FALSE(allowed.empty()) << "a dead end behind " << step << " tokens";
      ASSERT_EQ(has_bit(mask, kEnd), matcher.may_end());
      for (TokenId token = 0; token < vocabulary.size(); ++token) {
        const bool taken = matcher.append(token);
        ASSERT_EQ(taken, has_bit(mask, token))
            << "token " << token << " at " << step << " of walk " << walk;
        if (taken) matcher.rollback(1);
      }
      ASSERT_EQ(mask_of(matcher, vocabulary), mask);
      const bool end = matcher.may_end() && random() % 4 == 0;
      matcher.append(end ? kEnd : allowed[random() % allowed.size()]);
    }
  }
}

TEST_P(MatcherWalks, RollbackAndForksComeBack) {
  const auto grammar = compiled(GetParam().kind, GetParam().text, GetParam().any_member_order);
  ASSERT_NE(grammar, nullptr);
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::mt19937 random(11);
  Matcher matcher(grammar);
  std::vector<std::vector<uint32_t>> masks{mask_of(matcher, vocabulary)};
  for (int step = 0; step < 300; ++step) {
    if (random() % 3 == 0 && matcher.n_appended() > 0) {
      const int n = 1 + static_cast<int>(random() % matcher.n_appended());
      matcher.rollback(n);
      masks.resize(masks.size() - n);
      ASSERT_EQ(mask_of(matcher, vocabulary), masks.back());
    } else if (const auto allowed = tokens_in(masks.back(), vocabulary); !matcher.ended()) {
      Matcher fork(matcher);
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(fork.append(token));
      ASSERT_EQ(mask_of(matcher, vocabulary), masks.back());
      ASSERT_TRUE(matcher.append(token));
      masks.push_back(mask_of(matcher, vocabulary));
      ASSERT_EQ(mask_of(fork, vocabulary), masks.back());
    }
  }
}

// Where white space is open, the text is taken to go on as it was spaced before.
TEST(Matcher, ForcedTextIsSpacedAsTheTextBefore) {
  const auto grammar = compiled(
      SpecKind::kJsonSchema,
      R"({"type":"array","minItems":9,"items":{"type":"object","properties":{"kind":{"const":"ab"},"name":{"type":"integer"}},"required":["kind","name"]}})");
  ASSERT_NE(grammar, nullptr);
  const auto next = [&](const char* text) {
    Matcher matcher(grammar);
    EXPECT_TRUE(matcher.append_bytes(text)) << text;
    std::string forced;
    matcher.forced_bytes(forced, 64, true);
    return forced;
  };
  EXPECT_EQ(next("[{"), R"("kind": "ab", "name":)");
  EXPECT_EQ(next(R"([{"kind":"ab","name":1},{"k)"), R"(ind":"ab","name":)");
  EXPECT_EQ(next("[\n  {\n    \"kind\": \"ab\",\n    \"name\": 1\n  },\n  {"),
            "\n    \"kind\": \"ab\",\n    \"name\":");
}

// What is forced is what every way on begins with.
TEST_P(MatcherWalks, ForcedBytesAreForced) {
  const auto grammar = compiled(GetParam().kind, GetParam().text, GetParam().any_member_order);
  ASSERT_NE(grammar, nullptr);
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::mt19937 random(3);
  Matcher matcher(grammar);
  for (int step = 0; step < 60 && !matcher.ended(); ++step) {
    std::string forced;
    matcher.forced_bytes(forced);
    if (!forced.empty()) {
      for (int byte = 0; byte < 256; ++byte) {
        const bool taken = matcher.append(byte);
        EXPECT_EQ(taken, byte == static_cast<uint8_t>(forced[0]));
        if (taken) matcher.rollback(1);
      }
      EXPECT_TRUE(matcher.append_bytes(forced));
      continue;
    }
    const auto allowed = tokens_in(mask_of(matcher, vocabulary), vocabulary);
    ASSERT_FALSE(allowed.empty());
    matcher.append(allowed[random() % allowed.size()]);
  }
}

// From wherever a walk stands, some byte lowers what is left to write, down to the end.
TEST_P(MatcherWalks, EndingsAreReached) {
  const auto grammar = compiled(GetParam().kind, GetParam().text, GetParam().any_member_order);
  ASSERT_NE(grammar, nullptr);
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::mt19937 random(5);
  for (int walk = 0; walk < 10; ++walk) {
    Matcher matcher(grammar);
    for (int step = 0; step < walk * 3 && !matcher.ended(); ++step) {
      const auto allowed = tokens_in(mask_of(matcher, vocabulary), vocabulary);
      matcher.append(allowed[random() % allowed.size()]);
    }
    if (matcher.shortest_ending() == kNoEnding) {
      ASSERT_TRUE(has_unknown_ending(GetParam()));
      continue;
    }
    for (uint64_t left = matcher.shortest_ending(); left > 0; left = matcher.shortest_ending()) {
      ASSERT_LT(left, 1000U);
      const auto allowed = tokens_in(mask_of(matcher, vocabulary), vocabulary);
      const bool found = std::any_of(allowed.begin(), allowed.end(), [&](TokenId token) {
        if (vocabulary.bytes(token).size() > 1 || !matcher.append(token)) return false;
        if (matcher.shortest_ending() < left) return true;
        matcher.rollback(1);
        return false;
      });
      ASSERT_TRUE(found) << left << " bytes before the end of walk " << walk;
    }
    EXPECT_TRUE(matcher.may_end());
  }
}

TEST(Matcher, KnowsNoShortestEndingWhereWhiteSpaceMustStand) {
  const auto ending = [](std::string pattern, std::string schema) {
    GrammarSpec spec{SpecKind::kJsonSchema, std::move(schema)};
    spec.json.whitespace_pattern = std::move(pattern);
    return Matcher(Grammar::compile(spec, small_vocabulary()).value()).shortest_ending();
  };
  const std::string list =
      R"({"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 2})";
  EXPECT_EQ(ending(" {0,3}", list), 5U);
  for (const char* pattern : {" ", " {3}", "(   )?"})
    EXPECT_EQ(ending(pattern, list), kNoEnding) << pattern;
}

INSTANTIATE_TEST_SUITE_P(Grammars, MatcherWalks, testing::ValuesIn(kSpecimens),
                         [](const auto& specimen) {
                           std::string name = specimen.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(Matcher, EndsOnce) {
  Matcher matcher(compiled(SpecKind::kChoice, R"(["a"])"));
  EXPECT_FALSE(matcher.append(kEnd));
  EXPECT_TRUE(matcher.append('a'));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.must_end());
  EXPECT_TRUE(matcher.append(kEnd));
  EXPECT_TRUE(matcher.ended());
  EXPECT_FALSE(matcher.append('a'));
  matcher.rollback(1);
  EXPECT_FALSE(matcher.ended());
}

TEST(Matcher, ASpecialTokenIsARound) {
  Matcher matcher(compiled(SpecKind::kGrammar, "root ::= (<|call|> \"a\"* | <[257]> \"b\")+"));
  EXPECT_FALSE(matcher.may_end());
  EXPECT_TRUE(matcher.append(kCall));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.append(kCall));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Matcher, WhiteSpaceIsBounded) {
  Matcher matcher(compiled(SpecKind::kJsonObject, ""));
  EXPECT_FALSE(matcher.append(' '));  // none before the value
  EXPECT_TRUE(matcher.append('{'));
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(matcher.append(' '));
  EXPECT_FALSE(matcher.append(' '));
  EXPECT_TRUE(matcher.append('}'));
  EXPECT_FALSE(matcher.append(' '));  // none behind it
}

// Subtrees of plain text are taken as a whole where the pattern goes on behind each of its
// characters, and only there.
TEST(Matchers, PatternsThatAreLookedForInPlainText) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("");  // kEnd
  const std::vector<std::string> letters = {"h", "t", "p", "s", ":", "/", "\xC3\xA9"};
  for (const std::string& a : letters) {
    for (const std::string& b : letters) {
      tokens.push_back(a + b);
      for (const std::string& c : letters) tokens.push_back(a + b + c);
    }
  }
  const auto vocabulary = Vocabulary::make(std::move(tokens), {kEnd}, {});
  for (const char* pattern :
       {"(http)|(https)://(.*)$", "tps?:$", "^[htps:/]*h.?$", "t:s", "^.{0,3}s[^:]*$", "[^s]$"}) {
    const std::string schema = std::string(R"({"type":"string","pattern":")") + pattern + "\"}";
    const auto grammar = Grammar::compile({SpecKind::kJsonSchema, schema}, vocabulary);
    ASSERT_TRUE(grammar) << pattern;
    std::mt19937 random(3);
    for (int walk = 0; walk < 6; ++walk) {
      Matcher matcher(*grammar);
      for (int step = 0; step < 12 && !matcher.ended(); ++step) {
        const auto mask = mask_of(matcher, *vocabulary);
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < vocabulary->size(); ++token) {
          const bool taken = matcher.append(token);
          ASSERT_EQ(taken, has_bit(mask, token)) << pattern << " token " << token;
          if (!taken) continue;
          matcher.rollback(1);
          if (token >= 257 || step == 0) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        ASSERT_TRUE(matcher.append(allowed[random() % allowed.size()]));
      }
    }
  }
}

}  // namespace
}  // namespace penstock::grammar
