// Shared parts of the routes of Ollama's API (see api.md among its docs).
#pragma once
#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "frontend/chat/chat_setup.h"
#include "server/http/exchange.h"
#include "server/services/served_model.h"
#include "server/services/services.h"

namespace penstock {

// Returns {"error": message}, the form of all errors in this API.
HttpReply ollama_error(const Error& error);

std::string rfc3339(std::chrono::system_clock::time_point time);  // UTC, with microseconds
int64_t nanoseconds(double seconds);

// Returns the model's name as in the request, or the served name.
std::string ollama_name(const nlohmann::ordered_json& body, const ServedModel& model);

// Returns content of pictures, given as base64, before a text. where: the place of the list.
nlohmann::ordered_json with_images(nlohmann::ordered_json images, std::string text,
                                   const std::string& where);
// Converts the body of /api/chat; messages and tools are moved out of it. REQUIRES: a checked body.
// Errors: kInvalidArgument.
Result<Conversation> conversation_of_ollama(nlohmann::ordered_json& body);
// Sets the template variables for "think". Errors: kInvalidArgument (the model has no reasoning).
Status read_think(const nlohmann::ordered_json& body, const ServedModel& model,
                  Conversation& conversation);

// Converts "options", "format" and log-probabilities to the fields of read_generation(). Errors:
// kInvalidArgument (a field that cannot be honoured).
Result<nlohmann::ordered_json> params_of_ollama(const nlohmann::ordered_json& body,
                                                const ServedModel& model);

// Sets how long the model stays loaded after its last use, from "keep_alive". Ignored for keys
// without admin scope. Errors: kInvalidArgument (neither a number of seconds nor a duration such as
// "5m").
Status read_keep_alive(Services& services, const HttpRequest& request,
                       const nlohmann::ordered_json& body, ServedModel& model);
nlohmann::json keep_alive_field();

// Returns the schema of the fields shared by /api/generate and /api/chat.
nlohmann::json ollama_fields();

}  // namespace penstock
