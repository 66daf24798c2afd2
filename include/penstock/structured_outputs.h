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
  std::string grammar;              // GBNF or EBNF, from the rule `root`
  bool json_object = false;         // any JSON object
  std::string structural_tag;       // JSON

  bool disable_any_whitespace = false;  // none between the tokens of JSON
  bool disable_additional_properties =
      false;  // objects without additionalProperties have their properties only
  std::optional<std::string>
      whitespace_pattern;  // a regular expression for what stands between the tokens of JSON

  bool operator==(const StructuredOutputs&) const = default;
};

}  // namespace penstock
