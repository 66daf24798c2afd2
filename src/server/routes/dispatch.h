// From a route to its answer: the model is chosen where the request leaves that to the server,
// loaded, and the handler runs.
#pragma once
#include "server/routing/route.h"

namespace penstock {

// Lets the route's handler answer, with the model that the request names or one of its route table.
// Never throws.
net::awaitable<void> answer(Services& services, const Route& route, Exchange& exchange);

}  // namespace penstock
