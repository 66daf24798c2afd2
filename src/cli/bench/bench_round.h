// Runs requests concurrently and reports their statistics.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "penstock/engine.h"

namespace penstock {

// Returns a greedy request that generates exactly n_decode tokens.
Request decode_request(std::vector<TokenId> prompt, int n_decode);

struct RoundReport {
  // statistics of the requests in the order in which they ended
  std::vector<RequestStats> stats;
  // The decode throughput while all requests run: from the time at which each has its first token
  // to the first end. Counted in whole steps; 0 when there is no such time.
  struct Together {
    int64_t n_tokens = 0;
    double seconds = 0;
    double rate() const { return seconds > 0 ? static_cast<double>(n_tokens) / seconds : 0; }
  };
  Together together;
};

// Runs all requests at once and waits for their ends. REQUIRES: the engine was started. Errors:
// those of a request; kCancelled after Ctrl-C.
Result<RoundReport> run_round(Engine& engine, std::vector<Request> requests);
// As run_round(), but returns only the statistics.
Result<std::vector<RequestStats>> run_requests(Engine& engine, std::vector<Request> requests);

// Runs the warm-up steps of a started engine, in which weights may still be packed lazily (in
// mixtures of experts nearly all experts), so that they are not measured. Errors: those of
// run_requests().
Status settle(Engine& engine);

}  // namespace penstock
