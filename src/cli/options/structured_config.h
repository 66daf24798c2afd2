// Reads vLLM's flag --structured-outputs-config.
#pragma once
#include <string>

#include "server/services/config.h"

namespace penstock {

// text: a JSON object of StructuredOutputsConfig's fields and additional_properties.
// disable_any_whitespace, disable_additional_properties, additional_properties and reasoning_parser
// are applied; other fields must have the values that this engine implements. Errors:
// kInvalidArgument, with the field and the reason.
Status read_structured_config(const std::string& text, StructuredDefaults& defaults,
                              ChatConfig& chat);

}  // namespace penstock
