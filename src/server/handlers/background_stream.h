// Streams the events of a background response to a client while they are generated.
#pragma once
#include <memory>

#include "server/http/exchange.h"
#include "server/services/background_runs.h"

namespace penstock {

struct Services;

// Sends the events from index `next` on until the run ends. The run continues if the client leaves.
net::awaitable<void> stream_run(Services& services, Exchange& exchange,
                                std::shared_ptr<BackgroundRun> run, size_t next);

}  // namespace penstock
