// Dispatches a request to its route: chooses the model if the request leaves that to the server,
// loads it, and runs the handler.
#pragma once
#include "server/routing/route.h"

namespace penstock {

// Runs the route's handler with the named model, or with one chosen by a router. Never throws.
net::awaitable<void> answer(Services& services, const Route& route, Exchange& exchange);

}  // namespace penstock
