// Compiles what a call's texts are held to, before anything of it runs.
#pragma once
#include "server/api/generation.h"
#include "server/http/exchange.h"
#include "server/services/compile_queue.h"
#include "server/services/services.h"

namespace penstock {

// On threads of its own, where it is not known from an earlier call; other requests notice nothing,
// and a client that leaves meanwhile ends its place in the queue. What is not enforced goes into
// the reply's header x-structured-outputs-notes: a JSON array of {where, message}. Errors: of the
// compilation, in the request's words.
net::awaitable<Status> constrain(Services& services, Exchange& exchange, GenerationCall& call);

// Compiles for an exchange, which takes turns with the others of its key, or of its address where
// there are no keys. It ends when the client leaves. Errors: of CompileQueue::run().
net::awaitable<Status> run_compilation(Services& services, Exchange& exchange,
                                       CompileQueue::Attempt attempt);

}  // namespace penstock
