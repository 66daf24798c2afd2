// vLLM's --structured-outputs-config.
#pragma once
#include <string>

#include "server/services/config.h"

namespace penstock {

// text: a JSON object of StructuredOutputsConfig's fields. disable_any_whitespace, disable_additional_properties and
// reasoning_parser are taken over; others may say only what is the case here. Error: kInvalidArgument, which and why.
Status read_structured_config(const std::string& text, StructuredDefaults& defaults, ChatConfig& chat);

}  // namespace penstock
