// What a body says about the form of its output, in the fields of OpenAI, vLLM and llama.cpp.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "base/result.h"
#include "penstock/structured_outputs.h"

namespace penstock {

// Their schemas, by name; and that of response_format.
nlohmann::json structured_fields();
nlohmann::json response_format_field();

// nullopt: any text. Error: kInvalidArgument, more than one of them.
Result<std::optional<StructuredOutputs>> read_structured_outputs(const nlohmann::ordered_json& body);

}  // namespace penstock
