// The record of a request for the layers above HTTP: its caller, how it is computed, and its use.
// HTTP passes it through without looking at it.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/trace_context.h"

namespace penstock {

class Spending;  // keys/ledger/spending.h
class ServedModel;

// A generated text or computed vectors, with timings. The durations in seconds are consecutive from
// `begin`.
struct GenerationNote {
  std::string model;
  std::chrono::system_clock::time_point begin;
  double queued = 0, prefill = 0, decode = 0;
  int input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  std::vector<std::string> finish_reasons;
  // numeric parameters of the request by their names in the semantic conventions
  std::vector<std::pair<const char*, double>> asked;
};

struct RequestTrace {
  TraceContext context;
  std::chrono::system_clock::time_point begin = std::chrono::system_clock::now();
  bool notes_wanted = false;  // spans will be exported
  std::vector<GenerationNote> notes;
};

// The record of one request, used on its exchange's executor.
struct RequestRecord {
  // Id of the API key; "": no keys, or a key with all permissions.
  std::string key;
  // Id of the API key; "": no keys.
  std::string payer;
  // Tenant for cached prompts and replies (ApiKey::tenant()); "": no keys.
  std::string tenant;
  // The model that answers, overriding the body; "": the one named in the body.
  std::string model;
  // Run with Priority::kBackground and without the server's time limit.
  bool background = false;

  // Keep models loaded while the request is answered: at first all that it may ask for, then the one
  // that it asks for.
  std::vector<std::shared_ptr<ServedModel>> leases;
  // Ends the request because its model has to go. Called on any thread; does not block.
  std::function<void()> cut;

  // The payer's budget; null: use is not counted.
  std::shared_ptr<Spending> spending;
  // Warnings for the client (client_warnings.h).
  std::vector<std::string> warnings;
  // Refused because a budget is exhausted until its renewal.
  bool over_budget = false;
  // The request's trace, if any.
  std::optional<RequestTrace> trace;
  // The model's confidence in its reply; collected if set before the generation.
  struct Confidence {
    double sum_logprob = 0;  // over the tokens of all choices
    int n_tokens = 0;
    std::string text;  // text of the first choice
  };
  std::optional<Confidence> confidence;

  struct Use {
    int prompt_tokens = 0, completion_tokens = 0;
    int cached_tokens = 0;  // prompt tokens found in the prefix cache
    // the computing model's name in replies; "": none
    std::string model;
  };
  Use use;

  // Counts computed tokens (prompt tokens at the start) and charges them to the payer.
  void count_tokens(int prompt, int completion);
  // Returns a record for another request of the same caller, without use and payer.
  std::shared_ptr<RequestRecord> of_same_caller() const;
};

// Returns the request's record, or an empty one.
const RequestRecord& record_of(const HttpRequest& request);
inline const RequestRecord& record_of(const Exchange& exchange) {
  return record_of(exchange.request());
}
// Returns the record, creating it if there is none.
RequestRecord& record_of(Exchange& exchange);

}  // namespace penstock
