// API keys and quotas in HTTP headers and replies.
#pragma once
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/budget.h"

namespace penstock {

// Returns the request's key: "Authorization: Bearer KEY", "x-api-key: KEY", or the password of
// Basic authentication (which browsers ask for). "": none.
std::string presented_key(const HttpRequest& request);

// Returns 401; for a browser that loads a page, with a challenge that makes it ask the user.
HttpRefusal unauthorized(const HttpRequest& request);
// Returns 429 with Retry-After.
HttpRefusal over_quota(const ApiKey& key, const ApiKey::Refusal& refusal);
// Returns 429 for an exhausted budget, with the time at which it is renewed; text_of_budget() is
// its message.
HttpRefusal over_budget(const BudgetState& budget, int64_t now);
std::string text_of_budget(const BudgetState& budget);
// Returns 429 for a budget that has too little left for the request in addition to running ones.
HttpRefusal no_room_in_budget(const BudgetState& budget, int64_t now);
// Adds x-ratelimit-limit-… and x-ratelimit-remaining-… for the key's quotas.
void add_quota_headers(const ApiKey& key, Exchange& exchange);

}  // namespace penstock
