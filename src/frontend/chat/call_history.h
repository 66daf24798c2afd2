// Calls of earlier turns, in what a model's template does not do by itself.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "frontend/chat/call_format.h"

namespace penstock {

// Gives calls and their results the ids that the writing has (CallWriting::id), where those are made
// of the tool's name: Kimi's template writes nothing but the id. messages: OpenAI's; what is none of
// their forms is left as it is.
void fit_call_ids(const CallWriting& writing, nlohmann::ordered_json& messages);

// Writes calls into the content of their messages, as the model wrote them: for templates that do
// not show calls. Only writings with ArgumentForm::kJson; messages are left as they are with others.
void calls_into_content(const CallWriting& writing, nlohmann::ordered_json& messages);

}  // namespace penstock
