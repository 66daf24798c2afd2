// Dispatches a request to its endpoint: chooses the model if the request leaves that to the server,
// loads it, and runs the handler.
#pragma once
#include "server/routing/endpoint.h"

namespace penstock {

// Runs the endpoint's handler with the named model, or with one chosen by a router. Never throws.
net::awaitable<void> answer(Services& services, const Endpoint& endpoint, Exchange& exchange);

}  // namespace penstock
