// Loads the model that a request names and runs the endpoint's handler.
#pragma once
#include "server/routing/endpoint.h"

namespace penstock {

// Runs the handler with the model that the request names or that was set for it. May throw.
net::awaitable<void> respond(Services& services, const Endpoint& endpoint, Exchange& exchange);

}  // namespace penstock
