// What a route table looks at, in the bodies of all APIs.
#pragma once
#include <string>

#include "server/http/exchange.h"
#include "server/routes/table/route_features.h"
#include "server/services/services.h"

namespace penstock {

// Of a body that nobody has checked: what is not as it should be is left out here, and refused by
// whoever reads it.
RouteFeatures features_of(const Services& services, const HttpRequest& request);

// A request of a question to a model whose answer begins with one word, and how likely that word
// is, of the reply.
struct CheckRequest {
  std::string path, body;
};
CheckRequest check_request(const std::string& model, bool chats, const std::string& prompt);
// 0 where the reply does not have the word among its likeliest.
double probability_of(const std::string& word, const std::string& reply);

}  // namespace penstock
