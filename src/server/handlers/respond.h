// The last part of the way from a route to its answer: the model that the request names is loaded,
// and the handler runs.
#pragma once
#include "server/routing/route.h"

namespace penstock {

// Lets the route's handler answer, with the model that the request names or that was set for it.
// May throw.
net::awaitable<void> respond(Services& services, const Route& route, Exchange& exchange);

}  // namespace penstock
