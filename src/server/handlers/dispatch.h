// From a route to its answer: the model that the request names is chosen and loaded, and the handler runs.
#pragma once
#include "server/routing/route.h"

namespace penstock {

// Lets the route's handler answer, with the model that the request names. Never throws.
net::awaitable<void> answer(Services& services, const Route& route, Exchange& exchange);
// The same with the model that is named, or set, even where the request leaves it to the server. It may throw.
net::awaitable<void> respond(Services& services, const Route& route, Exchange& exchange);

}  // namespace penstock
