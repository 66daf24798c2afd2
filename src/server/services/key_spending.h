// What the exchanges of one API key use: held to its budgets and its quota of tokens.
#pragma once
#include <memory>

#include "gateway/api_keys.h"
#include "gateway/usage.h"
#include "server/http/spending.h"

namespace penstock {

// usage outlives it. with_quota: tokens are taken from the key's quota per minute too.
std::shared_ptr<Spending> spending_of(std::shared_ptr<ApiKey> key, Usage& usage, bool with_quota);

}  // namespace penstock
