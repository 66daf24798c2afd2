// Extracts the features that routing rules test from the bodies of all APIs.
#pragma once
#include <string>

#include "server/http/exchange.h"
#include "server/routes/table/route_features.h"
#include "server/services/services.h"

namespace penstock {

// Reads an unchecked body: malformed fields are ignored here and refused later by the handler.
RouteFeatures features_of(const Services& services, const HttpRequest& request);

// A request that asks a model to judge an answer with one word, whose probability is read from the
// reply.
struct CheckRequest {
  std::string path, body;
};
// Fills "{question}" and "{answer}" of a check; such marks inside of both are text.
std::string check_prompt(std::string_view check, std::string_view question,
                         std::string_view answer);
CheckRequest check_request(const std::string& model, bool chats, const std::string& prompt);
// Returns the probability of the word as the first token of the reply; 0: not among the reported
// alternatives.
double probability_of(const std::string& word, const std::string& reply);

}  // namespace penstock
