// What the exchanges of one API key use: held to its budgets and its quota of tokens.
#pragma once
#include <memory>

#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/spending.h"
#include "server/keys/ledger/usage.h"

namespace penstock {

// usage outlives it. with_quota: tokens are taken from the key's quota per minute too.
std::shared_ptr<Spending> spending_of(std::shared_ptr<ApiKey> key, Usage& usage, bool with_quota);

}  // namespace penstock
