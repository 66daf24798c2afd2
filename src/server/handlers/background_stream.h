// The events of a reply that is made in the background, for a client that reads them while they
// come.
#pragma once
#include <memory>

#include "server/http/exchange.h"
#include "server/services/background_runs.h"

namespace penstock {

struct Services;

// Those from the place `next` on, until the run ends. A client that leaves ends nothing.
net::awaitable<void> stream_run(Services& services, Exchange& exchange,
                                std::shared_ptr<BackgroundRun> run, size_t next);

}  // namespace penstock
