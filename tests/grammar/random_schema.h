// JSON Schemas drawn at random whose members overlap: enum, const, type and bounds about the same
// values in every place a schema may stand, and vocabularies whose tokens are pieces of them. The
// same choices give the same schema.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace penstock::grammar {

// Where the choices come from: bytes, and behind their end numbers that the bytes seed.
class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed) {}
  Choices(const uint8_t* bytes, size_t size) : bytes_(bytes, size), state_(size) {}

  uint32_t below(uint32_t n) {
    if (at_ < bytes_.size()) {
      state_ = state_ * 31 + bytes_[at_];
      return bytes_[at_++] % n;
    }
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>((state_ >> 33) % n);
  }
  bool one_in(uint32_t n) { return below(n) == 0; }
  std::string_view of(std::span<const char* const> list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  uint64_t state_;
};

class RandomSchema {
 public:
  explicit RandomSchema(Choices& choices) : choices_(choices) {}

  std::string draw() {
    std::string body = object(3);
    if (!uses_definitions_) return body;
    const std::string definitions = R"("$defs":{"d":)" + schema(2) + R"(,"e":)" + schema(1) + "}";
    body.pop_back();
    return body + (body.size() > 1 ? "," : "") + definitions + "}";
  }

 private:
  static constexpr std::array kNumbers{"0",
                                       "1",
                                       "-1",
                                       "503",
                                       "50",
                                       "5",
                                       "5.0",
                                       "5e0",
                                       "0.5",
                                       "5e-1",
                                       "-0",
                                       "1e16",
                                       "1e300",
                                       "1e-7",
                                       "1.5",
                                       "-1.5e+2",
                                       "0.10",
                                       "10",
                                       "1e1",
                                       "100e-1",
                                       "123456789012345678901",
                                       "9007199254740993"};
  static constexpr std::array kStrings{R"("")",    R"("a")",    R"("ab")",           R"("%env")",
                                       R"("503")", R"("null")", R"("\u00e9")",       R"("\u0000")",
                                       R"("\"")",  R"("\\")",   R"("\ud83d\ude00")", R"("b")",
                                       R"("a b")", R"("/")",    R"("1e1")"};
  static constexpr std::array kWords{"null", "true", "false"};
  static constexpr std::array kArrays{"[]",      "[1]",          R"(["a",1])",  "[[1]]",
                                      "[1,1.0]", R"([{"a":1}])", "[null,true]", "[503]"};
  static constexpr std::array kObjects{"{}",
                                       R"({"a":1})",
                                       R"({"b":1,"a":2})",
                                       R"({"a":{"b":1}})",
                                       R"({"c":[1]})",
                                       R"({"a":"%env","b":503})"};
  static constexpr std::array kTypes{R"("integer")", R"("number")", R"("string")", R"("null")",
                                     R"("boolean")", R"("array")",  R"("object")"};
  static constexpr std::array kKeys{R"("a")", R"("b")", R"("c")", R"("ab")", R"("%")", R"("")"};
  static constexpr std::array kPatterns{R"("^a")",     R"("b$")",      R"("^[ab]$")",
                                        R"("^.{2}$")", R"("[0-9]+")",  R"("^(a|ab)*$")",
                                        R"("^$")",     R"("^[^b]*$")", R"("%")"};
  static constexpr std::array kFormats{R"("date")",  R"("ipv4")",  R"("uuid")",
                                       R"("int32")", R"("email")", R"("byte")"};

  std::string value() {
    switch (choices_.below(8)) {
      case 0:
      case 1:
      case 2: return std::string(choices_.of(kNumbers));
      case 3:
      case 4: return std::string(choices_.of(kStrings));
      case 5: return std::string(choices_.of(kWords));
      case 6: return std::string(choices_.of(kArrays));
      default: return std::string(choices_.of(kObjects));
    }
  }
  std::string count() { return std::to_string(choices_.below(4)); }
  std::string number() { return std::string(choices_.of(kNumbers)); }

  template <class Draw>
  std::string list(uint32_t most, const Draw& draw) {
    std::string text = "[";
    for (uint32_t n = 1 + choices_.below(most); n > 0; --n) text += draw() + (n > 1 ? "," : "");
    return text + "]";
  }
  // Keys that come once each.
  template <class Draw>
  std::string members(std::span<const char* const> keys, const Draw& draw) {
    std::string text;
    for (const char* key : keys) {
      if (choices_.below(5) < 2)
        text += (text.empty() ? "" : ",") + std::string(key) + ":" + draw();
    }
    return "{" + text + "}";
  }
  std::string keys() {
    std::string text;
    for (const char* key : kKeys) {
      if (choices_.one_in(4)) text += (text.empty() ? "" : ",") + std::string(key);
    }
    return "[" + text + "]";
  }

  std::string schema(int depth) {
    if (depth <= 0) return leaf();
    if (choices_.one_in(12)) return choices_.one_in(2) ? "true" : "false";
    return object(depth);
  }
  std::string leaf() {
    switch (choices_.below(5)) {
      case 0: return R"({"enum":)" + list(5, [&] { return value(); }) + "}";
      case 1: return R"({"const":)" + value() + "}";
      case 2: return "true";
      default: return R"({"type":)" + std::string(choices_.of(kTypes)) + "}";
    }
  }

  std::string object(int depth) {
    std::string text, seen;
    for (uint32_t n = 1 + choices_.below(4); n > 0; --n) {
      const std::string one = keyword(depth);
      const std::string name = one.substr(0, one.find(':') + 1);
      if (seen.find(name) != std::string::npos) continue;  // no key twice
      seen += name;
      text += (text.empty() ? "" : ",") + one;
    }
    return "{" + text + "}";
  }

  std::string keyword(int depth) {
    switch (choices_.below(5)) {
      case 0: return about_any();
      case 1: return about_scalars();
      case 2: return about_arrays(depth);
      case 3: return about_objects(depth);
      default: return of_schemas(depth);
    }
  }
  std::string about_any() {
    switch (choices_.below(4)) {
      case 0: return R"("enum":)" + list(6, [&] { return value(); });
      case 1: return R"("const":)" + value();
      case 2: return R"("type":)" + list(1, [&] { return std::string(choices_.of(kTypes)); });
      default: return R"("type":)" + std::string(choices_.of(kTypes));
    }
  }
  std::string about_scalars() {
    switch (choices_.below(9)) {
      case 0: return R"("minimum":)" + number();
      case 1: return R"("maximum":)" + number();
      case 2: return R"("exclusiveMinimum":)" + number();
      case 3: return R"("exclusiveMaximum":)" + number();
      case 4: return choices_.one_in(2) ? R"("multipleOf":5)" : R"("multipleOf":0.5)";
      case 5: return R"("minLength":)" + count();
      case 6: return R"("maxLength":)" + count();
      case 7: return R"("pattern":)" + std::string(choices_.of(kPatterns));
      default: return R"("format":)" + std::string(choices_.of(kFormats));
    }
  }
  std::string about_arrays(int depth) {
    const auto one = [&] { return schema(depth - 1); };
    switch (choices_.below(9)) {
      case 0:
      case 1: return R"("items":)" + one();
      case 2: return R"("prefixItems":)" + list(3, one);
      case 3: return R"("contains":)" + one();
      case 4: return R"("minContains":)" + count();
      case 5: return R"("maxContains":)" + count();
      case 6: return choices_.one_in(2) ? R"("minItems":)" + count() : R"("maxItems":)" + count();
      case 7: return R"("uniqueItems":true)";
      default: return R"("unevaluatedItems":)" + one();
    }
  }
  std::string about_objects(int depth) {
    const auto one = [&] { return schema(depth - 1); };
    switch (choices_.below(12)) {
      case 0:
      case 1:
      case 2: return R"("properties":)" + members(kKeys, one);
      case 3: return R"("required":)" + keys();
      case 4: return R"("patternProperties":)" + members(std::span(kPatterns).first(4), one);
      case 5: return R"("additionalProperties":)" + one();
      case 6: return R"("propertyNames":)" + one();
      case 7: return R"("minProperties":)" + count();
      case 8: return R"("maxProperties":)" + count();
      case 9: return R"("dependentRequired":)" + members(kKeys, [&] { return keys(); });
      case 10: return R"("dependentSchemas":)" + members(kKeys, one);
      default: return R"("unevaluatedProperties":)" + one();
    }
  }
  std::string of_schemas(int depth) {
    const auto one = [&] { return schema(depth - 1); };
    switch (choices_.below(9)) {
      case 0:
      case 1: return R"("anyOf":)" + list(3, one);
      case 2: return R"("oneOf":)" + list(3, one);
      case 3: return R"("allOf":)" + list(3, one);
      case 4: return R"("not":)" + one();
      case 5: return R"("if":)" + one();
      case 6: return R"("then":)" + one();
      case 7: return R"("else":)" + one();
      default:
        uses_definitions_ = true;
        return choices_.one_in(2) ? R"("$ref":"#/$defs/d")" : R"("$ref":"#/$defs/e")";
    }
  }

  Choices& choices_;
  bool uses_definitions_ = false;
};

inline constexpr TokenId kEndOfDrawn = 256;

// All bytes, the end, and pieces of the text, some of them with what follows values in JSON.
inline std::shared_ptr<const Vocabulary> random_vocabulary(Choices& choices,
                                                           std::string_view text) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  static constexpr std::array kBehind{"",    "",   "\"",  "}", "]",  ",",  ", \"",
                                      "\":", "}]", ",\"", "0", "e1", ".5", "]}"};
  for (uint32_t n = 8 + choices.below(40); n > 0; --n) {
    const uint32_t begin = choices.below(static_cast<uint32_t>(text.size()));
    std::string token(text.substr(begin, 1 + choices.below(6)));
    token += choices.of(kBehind);
    tokens.push_back(std::move(token));
  }
  return Vocabulary::make(std::move(tokens), {kEndOfDrawn});
}

// Walks texts of the grammar, token by token as they are drawn: bits are what is taken, and
// something always is. What is wrong; "" where nothing is.
inline std::string walk(const std::shared_ptr<const Grammar>& grammar, Choices& choices,
                        int n_steps) {
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::vector<uint32_t> mask(vocabulary.mask_words());
  Matcher matcher(grammar);
  std::string text;
  for (int step = 0; step < n_steps && !matcher.ended(); ++step) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed, longer;
    for (TokenId token = 0; token < vocabulary.size(); ++token) {
      if ((mask[token / 32] >> (token % 32) & 1) == 0) continue;
      allowed.push_back(token);
      if (vocabulary.bytes(token).size() > 1) longer.push_back(token);
    }
    if (allowed.empty()) return "a dead end behind " + text;
    const auto other =
        static_cast<TokenId>(choices.below(static_cast<uint32_t>(vocabulary.size())));
    const bool bit = (mask[other / 32] >> (other % 32) & 1) != 0;
    if (matcher.append(other) != bit)
      return "the mask and append() differ on '" + std::string(vocabulary.bytes(other)) +
             "' behind " + text;
    if (bit) {
      text += vocabulary.bytes(other);
      continue;
    }
    const auto& list = longer.empty() || choices.one_in(2) ? allowed : longer;
    const TokenId token = list[choices.below(static_cast<uint32_t>(list.size()))];
    if (!matcher.append(token))
      return "the mask allows '" + std::string(vocabulary.bytes(token)) +
             "', append() does not, behind " + text;
    text += vocabulary.bytes(token);
  }
  return "";
}

// One schema, its grammar and some walks with a vocabulary that is drawn too. What is wrong; ""
// where nothing is.
inline std::string try_random_schema(Choices& choices, const CompileLimits& limits) {
  const std::string schema = RandomSchema(choices).draw();
  const auto vocabulary = random_vocabulary(choices, schema);
  GrammarSpec spec{SpecKind::kJsonSchema, schema};
  spec.json.any_member_order = choices.one_in(2);
  spec.json.whitespace = static_cast<WhiteSpace>(choices.below(3));
  spec.json.closed_objects = choices.one_in(2);
  const auto grammar = Grammar::compile(spec, vocabulary, limits);
  if (!grammar) return "";
  for (int round = 0; round < 3; ++round) {
    const std::string wrong = walk(*grammar, choices, 24);
    if (!wrong.empty()) return schema + ": " + wrong;
  }
  return "";
}

inline CompileLimits small_limits() {
  CompileLimits limits;
  limits.max_schemas = 2000;
  limits.max_expr_nodes = 20'000;
  limits.max_states = 5000;
  limits.max_edges = 50'000;
  limits.max_alternatives = 64;
  limits.max_steps = 2'000'000;
  return limits;
}

}  // namespace penstock::grammar
