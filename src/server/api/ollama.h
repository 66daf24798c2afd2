// What the routes of Ollama's API have in common (docs/api.md of Ollama).
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

// {"error": message}, which is the whole of an error in this API.
HttpReply ollama_error(const Error& error);

std::string rfc3339(std::chrono::system_clock::time_point time);  // UTC, with microseconds
int64_t nanoseconds(double seconds);

// The model's name as the request has it, or the served one.
std::string ollama_name(const nlohmann::ordered_json& body, const ServedModel& model);

// Conversations of /api/chat. body: checked; messages and tools are taken out of it. Errors:
// kInvalidArgument, images.
Result<Conversation> conversation_of_ollama(nlohmann::ordered_json& body);
// The template's variables that "think" stands for. Error: kInvalidArgument, asked of a model
// without reasoning.
Status read_think(const nlohmann::ordered_json& body, const ServedModel& model,
                  Conversation& conversation);

// "options", "format" and the log-probabilities as read_generation's fields. Errors:
// kInvalidArgument, what cannot be honoured.
Result<nlohmann::ordered_json> params_of_ollama(const nlohmann::ordered_json& body,
                                                const ServedModel& model);

// How long the model stays loaded after its last use: "keep_alive" of requests with no API key or
// an admin's; it is no business of others'. Error: kInvalidArgument, no number of seconds and no
// duration such as "5m".
Status read_keep_alive(Services& services, const HttpRequest& request,
                       const nlohmann::ordered_json& body, ServedModel& model);
nlohmann::json keep_alive_field();

// The schema of the fields of /api/generate and /api/chat that both have.
nlohmann::json ollama_fields();

}  // namespace penstock
