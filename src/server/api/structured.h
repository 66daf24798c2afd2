// The form of the output as requested by fields of OpenAI, Anthropic, vLLM and llama.cpp.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "penstock/structured_outputs.h"

namespace penstock {

struct StructuredDefaults;

// Schemas: the fields of vLLM and llama.cpp by name, OpenAI's response_format, `format` in the text
// of responses, Anthropic's output_format.
nlohmann::json structured_fields();
nlohmann::json response_format_field();
nlohmann::json text_format_field();
nlohmann::json output_format_field();

struct AskedOutputs {
  StructuredOutputs outputs;
  // the path of the specification in the body: "response_format.json_schema.schema"
  std::string field;
};

// Reads the form from a checked body; nullopt: any text. A structured_outputs that has only options
// modifies the form given by another field; alone it defines none. Errors: kInvalidArgument (more
// than one form).
Result<std::optional<AskedOutputs>> read_structured_outputs(const nlohmann::ordered_json& body);

// Sets what the request leaves open to the server's defaults.
void add_defaults(const StructuredDefaults& defaults, StructuredOutputs& outputs);

// Returns the number of bytes of its texts.
size_t text_bytes(const StructuredOutputs& outputs);

}  // namespace penstock
