// What a request is to the layers above HTTP, which hands it along unseen: who asks, how it is
// computed and what it has used.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/trace_context.h"

namespace penstock {

class Spending;  // keys/ledger/spending.h

// A text or vectors that a request was answered with, and where the time went. Seconds follow one
// another from `begin`.
struct GenerationNote {
  std::string model;
  std::chrono::system_clock::time_point begin;
  double queued = 0, prefill = 0, decode = 0;
  int input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  std::vector<std::string> finish_reasons;
  // What was asked for, by the names of the semantic conventions: numbers.
  std::vector<std::pair<const char*, double>> asked;
};

struct RequestTrace {
  TraceContext context;
  std::chrono::system_clock::time_point begin = std::chrono::system_clock::now();
  bool notes_wanted = false;  // spans will be made of it
  std::vector<GenerationNote> notes;
};

// Of one request, on its exchange's executor.
struct RequestRecord {
  // Id of the API key; empty where there are none, and of one that may do everything.
  std::string key;
  // Id of the API key; empty where there are none.
  std::string payer;
  // Whose cached prompts and replies it shares (ApiKey::tenant); empty where there are none.
  std::string tenant;
  // The model that answers, whatever the body says; "": the one that the body names.
  std::string model;
  // Computed with Priority::kBackground and without the server's time limit.
  bool background = false;

  // Who pays for it; null: nobody counts.
  std::shared_ptr<Spending> spending;
  // What the client shall know of it (client_warnings.h).
  std::vector<std::string> warnings;
  // It was refused, and would be again until a budget is renewed.
  bool over_budget = false;
  // Which trace it is a part of, if any.
  std::optional<RequestTrace> trace;
  // How sure the model was of what it said; gathered where it is there before the answer is made.
  struct Confidence {
    double sum_logprob = 0;  // of the tokens of all choices
    int n_tokens = 0;
    std::string text;  // of the first choice
  };
  std::optional<Confidence> confidence;

  struct Use {
    int prompt_tokens = 0, completion_tokens = 0;
    int cached_tokens = 0;  // prompt tokens that were not computed again
    std::string model;      // that computes, as replies call it; "": none
  };
  Use use;

  // Counts tokens as they are computed, prompt tokens at the start, and charges them to whoever
  // pays.
  void count_tokens(int prompt, int completion);
  // Returns the record of another request of the same caller, which has used nothing and pays
  // nothing.
  std::shared_ptr<RequestRecord> of_same_caller() const;
};

// Returns the record of a request; an empty one for a request without.
const RequestRecord& record_of(const HttpRequest& request);
inline const RequestRecord& record_of(const Exchange& exchange) {
  return record_of(exchange.request());
}
// Begins the record of an exchange that has none.
RequestRecord& record_of(Exchange& exchange);

}  // namespace penstock
