// Requests that run together, and what became of them.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "penstock/engine.h"

namespace penstock {

// Greedy, and as long as it is asked to be.
Request decode_request(std::vector<TokenId> prompt, int n_decode);

struct RoundReport {
  std::vector<RequestStats> stats;  // in the order of their ends
  // What all requests made from when each had its first token to the first end: from then on fewer decode than are to be measured.
  // Counted in whole steps. 0 where there was none.
  struct Together {
    int64_t n_tokens = 0;
    double seconds = 0;
    double rate() const { return seconds > 0 ? static_cast<double>(n_tokens) / seconds : 0; }
  };
  Together together;
};

// All at once, on an engine that was started; waits for their ends. Errors: a request's, kCancelled (interrupted).
Result<RoundReport> run_round(Engine& engine, std::vector<Request> requests);
// Their stats alone.
Result<std::vector<RequestStats>> run_requests(Engine& engine, std::vector<Request> requests);

// Takes the first steps of an engine that was started, which may still pack weights (of a mixture nearly all experts), so
// that none is measured. Errors: as run_requests.
Status settle(Engine& engine);

}  // namespace penstock
