// Loads the model that a request names and runs the route's handler.
#pragma once
#include "server/routing/route.h"

namespace penstock {

// Runs the handler with the model that the request names or that was set for it. May throw.
net::awaitable<void> respond(Services& services, const Route& route, Exchange& exchange);

}  // namespace penstock
