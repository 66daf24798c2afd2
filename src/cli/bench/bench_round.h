// Requests that run together, and what became of them.
#pragma once
#include <vector>

#include "base/result.h"
#include "penstock/engine.h"

namespace penstock {

// Greedy, and as long as it is asked to be.
Request decode_request(std::vector<TokenId> prompt, int n_decode);

// All at once, on an engine that was started; waits for their ends. Errors: a request's, kCancelled (interrupted).
Result<std::vector<RequestStats>> run_requests(Engine& engine, std::vector<Request> requests);

// Takes the first steps of an engine that was started, which may still pack weights (of a mixture nearly all experts), so
// that none is measured. Errors: as run_requests.
Status settle(Engine& engine);

}  // namespace penstock
