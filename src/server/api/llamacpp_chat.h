// The fields that llama.cpp's server has in chats and completions beside OpenAI's.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "server/services/served_model.h"

namespace penstock {

// Their schemas, by name.
nlohmann::json llamacpp_chat_fields();
// Writes those of a checked body under the names that this server has for them. Errors:
// kInvalidArgument, what cannot be honoured, or stands beside another field that says the same.
Status take_llamacpp_chat_fields(nlohmann::ordered_json& body, const ServedModel& model);

}  // namespace penstock
