// Compiles the grammar of a call's outputs before the generation starts.
#pragma once
#include "server/api/generation.h"
#include "server/http/exchange.h"
#include "server/services/compile_queue.h"
#include "server/services/services.h"

namespace penstock {

// Compiles on separate threads unless the grammar is cached. A client that leaves gives up its
// place in the queue. Notes about what is not enforced go into the header
// x-structured-outputs-notes: a JSON array of {where, message}. Errors: those of the compilation,
// in the request's field names.
net::awaitable<Status> constrain(Services& services, Exchange& exchange, GenerationCall& call);

// Runs a compilation in turns with other API keys (or client addresses if there are no keys);
// cancelled when the client leaves. Errors: those of CompileQueue::run().
net::awaitable<Status> run_compilation(Services& services, Exchange& exchange,
                                       CompileQueue::Attempt attempt);

}  // namespace penstock
