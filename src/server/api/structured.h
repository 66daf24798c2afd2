// What a body says about the form of its output, in the fields of OpenAI, Anthropic, vLLM and
// llama.cpp.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "penstock/structured_outputs.h"

namespace penstock {

struct StructuredDefaults;

// Their schemas: of vLLM's and llama.cpp's fields by name, of OpenAI's response_format, of `format`
// in the text of responses, of Anthropic's output_format.
nlohmann::json structured_fields();
nlohmann::json response_format_field();
nlohmann::json text_format_field();
nlohmann::json output_format_field();

struct AskedOutputs {
  StructuredOutputs outputs;
  // the path of the specification in the body: "response_format.json_schema.schema"
  std::string field;
};

// body: checked against a schema with some of these fields. nullopt: any text. structured_outputs
// with options only tells those of the form that another field gives; alone it has no form. Error:
// kInvalidArgument, more than one form.
Result<std::optional<AskedOutputs>> read_structured_outputs(const nlohmann::ordered_json& body);

// What a request does not ask for, and the server's defaults do.
void add_defaults(const StructuredDefaults& defaults, StructuredOutputs& outputs);

// Of the texts in it.
size_t text_bytes(const StructuredOutputs& outputs);

}  // namespace penstock
