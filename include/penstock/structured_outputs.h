// Constraints on the text of an output. Names follow vLLM's StructuredOutputsParams.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Exactly one of the first six fields is set. Every output obeys it, unless max_tokens cuts the
// text off; a constraint that cannot be enforced is an error before anything runs.
struct StructuredOutputs {
  std::string json;  // a JSON Schema
  // a regular expression that the whole text matches
  std::string regex;
  std::vector<std::string> choice;  // the text is one of these
  // GBNF or EBNF, from the rule `root`, or Lark, from `start`
  std::string grammar;
  bool json_object = false;    // the text is any JSON object
  std::string structural_tag;  // a structural tag, as JSON

  // No white space between the tokens of JSON; else at most one space behind commas and colons.
  bool disable_any_whitespace = false;
  // JSON objects have only the properties that their schema names, unless it has
  // additionalProperties: that is so without the field, too.
  bool disable_additional_properties = false;
  // JSON objects may have other properties than those that their schema names, unless it has
  // additionalProperties: false. Not beside disable_additional_properties.
  bool additional_properties = false;
  // Regular expression of the white space between any two tokens of JSON.
  std::optional<std::string> whitespace_pattern;

  // The text is complete within max_tokens: near the limit only tokens from which it can still be
  // completed are drawn. max_tokens must be at least the number of bytes of the shortest allowed
  // text, plus one. Not with beams.
  bool complete_within_max_tokens = false;

  bool operator==(const StructuredOutputs&) const = default;

  // Whether one of the first six fields is set; if not, the others are options of another form.
  bool has_form() const {
    return !json.empty() || !regex.empty() || !choice.empty() || !grammar.empty() || json_object ||
           !structural_tag.empty();
  }
  // Sets the fields behind the first six to those of the other.
  void set_options(const StructuredOutputs& other) {
    disable_any_whitespace = other.disable_any_whitespace;
    disable_additional_properties = other.disable_additional_properties;
    additional_properties = other.additional_properties;
    whitespace_pattern = other.whitespace_pattern;
    complete_within_max_tokens = other.complete_within_max_tokens;
  }

  // how a field stands in JSON: as itself, or as a value whose text it holds
  enum class As { kText, kJson };

  // Calls v(name, field, help, as) for every field, in this order: the list for JSON and for the
  // API's documents. Self is StructuredOutputs or const StructuredOutputs.
  template <class Self, class V>
  static void visit(Self& s, V&& v) {
    v("json", s.json, "a JSON Schema, or its text", As::kJson);
    v("regex", s.regex, "a regular expression that the whole text matches", As::kText);
    v("choice", s.choice, "the text is one of these", As::kText);
    v("grammar", s.grammar, "GBNF or EBNF, from the rule root, or Lark, from the rule start",
      As::kText);
    v("json_object", s.json_object, "any JSON object", As::kText);
    v("structural_tag", s.structural_tag, "a structural tag, or its text", As::kJson);
    v("disable_any_whitespace", s.disable_any_whitespace,
      "no white space between the tokens of JSON, not even a space behind commas and colons",
      As::kText);
    v("disable_additional_properties", s.disable_additional_properties,
      "objects have the properties that are named only: the default", As::kText);
    v("additional_properties", s.additional_properties,
      "objects may have properties that their schema does not name", As::kText);
    v("whitespace_pattern", s.whitespace_pattern,
      "a regular expression for what may stand between the tokens of JSON", As::kText);
    v("complete_within_max_tokens", s.complete_within_max_tokens,
      "the text comes to its end within max_tokens", As::kText);
  }
};

}  // namespace penstock
