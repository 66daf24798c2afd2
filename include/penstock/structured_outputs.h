// What an output must look like. Names follow vLLM's StructuredOutputsParams.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Exactly one of the first six. Every text that comes out is allowed by it, unless max_tokens cuts it off; what cannot be
// enforced is an error before anything runs.
struct StructuredOutputs {
  std::string json;                 // a JSON Schema
  std::string regex;                // which the whole text matches
  std::vector<std::string> choice;  // one of these texts
  std::string grammar;              // GBNF or EBNF, from the rule `root`, or Lark, from `start`
  bool json_object = false;         // any JSON object
  std::string structural_tag;       // JSON

  bool disable_any_whitespace = false;  // none between the tokens of JSON
  bool disable_additional_properties =
      false;  // objects without additionalProperties have their properties only
  std::optional<std::string>
      whitespace_pattern;  // a regular expression for what stands between the tokens of JSON

  // The text comes to its end within max_tokens, which then must be as many as bytes that the shortest text has, and one;
  // not with beams. Towards the last tokens only those are drawn that lead there.
  bool complete_within_max_tokens = false;

  bool operator==(const StructuredOutputs&) const = default;

  enum class As { kText, kJson };  // a string, or any JSON whose text the string is

  // Calls v(name, field, help, as) for every field, in this order: the list for JSON and for the API's documents. Self is
  // StructuredOutputs or const StructuredOutputs.
  template <class Self, class V>
  static void visit(Self& s, V&& v) {
    v("json", s.json, "a JSON Schema, or its text", As::kJson);
    v("regex", s.regex, "a regular expression that the whole text matches", As::kText);
    v("choice", s.choice, "the text is one of these", As::kText);
    v("grammar", s.grammar, "GBNF or EBNF, from the rule root, or Lark, from the rule start", As::kText);
    v("json_object", s.json_object, "any JSON object", As::kText);
    v("structural_tag", s.structural_tag, "a structural tag, or its text", As::kJson);
    v("disable_any_whitespace", s.disable_any_whitespace, "no white space between the tokens of JSON",
      As::kText);
    v("disable_additional_properties", s.disable_additional_properties,
      "objects have the properties that are named only", As::kText);
    v("whitespace_pattern", s.whitespace_pattern,
      "a regular expression for what may stand between the tokens of JSON", As::kText);
    v("complete_within_max_tokens", s.complete_within_max_tokens,
      "the text comes to its end within max_tokens", As::kText);
  }
};

}  // namespace penstock
