// Answering with a stream of server-sent events while a generation runs.
#pragma once
#include <functional>

#include "server/generation.h"
#include "server/server.h"

namespace penstock {

// Sends the events that `render` makes of each delta (whole "data: …\n\n" blocks, or nothing), keep-alive comments while
// nothing happens, then what `finish` makes, then the end. An error inside the stream becomes an error event.
net::awaitable<void> stream_events(Server& server, Exchange& exchange, Generation& generation,
                                   std::function<std::string(const ChoiceDelta&)> render,
                                   std::function<std::string()> finish);

}  // namespace penstock
