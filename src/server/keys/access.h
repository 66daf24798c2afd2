// Keys and quotas as HTTP shows them.
#pragma once
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/budget.h"

namespace penstock {

// The key of a request: "Authorization: Bearer KEY", "x-api-key: KEY", or the password of Basic
// authentication (what a browser asks its user for). Empty: none.
std::string presented_key(const HttpRequest& request);

// 401; a browser that loads a page is told to ask its user.
HttpRefusal unauthorized(const HttpRequest& request);
// 429 with Retry-After.
HttpRefusal over_quota(const ApiKey& key, const ApiKey::Refusal& refusal);
// The same of a budget that is spent, and its text: with the time when it is renewed.
HttpRefusal over_budget(const BudgetState& budget, int64_t now);
std::string text_of_budget(const BudgetState& budget);
// The same of one that has too little left for a request beside those under way.
HttpRefusal no_room_in_budget(const BudgetState& budget, int64_t now);
// x-ratelimit-limit-… and x-ratelimit-remaining-… of the quotas that the key has.
void add_quota_headers(const ApiKey& key, Exchange& exchange);

}  // namespace penstock
