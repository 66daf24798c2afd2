// The fields that llama.cpp's server adds to OpenAI's chats and completions.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "server/services/served_model.h"

namespace penstock {

// Returns their schemas by name.
nlohmann::json llamacpp_chat_fields();
// Renames these fields of a checked body to this server's names. Errors: kInvalidArgument (a field
// that cannot be honoured, or two fields with the same meaning).
Status take_llamacpp_chat_fields(nlohmann::ordered_json& body, const ServedModel& model);

}  // namespace penstock
