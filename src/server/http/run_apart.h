// Work that would hold up the connections: large bodies are parsed, rendered and tokenized on a thread of
// their own.
#pragma once
#include <boost/asio/thread_pool.hpp>
#include <functional>

#include "server/http/exchange.h"

namespace penstock {

// Runs `work` and comes back to the exchange's executor: at once when the request's body is small, on the one
// thread for large ones otherwise, in the order they came. What it refers to must live until then, which the
// caller's frame does.
net::awaitable<void> run_apart(const Exchange& exchange, std::function<void()> work);

// The same, always on one of these threads.
net::awaitable<void> run_on(net::thread_pool& threads, std::function<void()> work);

}  // namespace penstock
