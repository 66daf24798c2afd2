// Spending of one API key's exchanges, limited by its budgets and token quota.
#pragma once
#include <memory>

#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/spending.h"
#include "server/keys/ledger/usage.h"

namespace penstock {

// with_quota: also charges the key's tokens-per-minute quota. REQUIRES: `usage` outlives the
// result.
std::shared_ptr<Spending> spending_of(std::shared_ptr<ApiKey> key, Usage& usage, bool with_quota);

}  // namespace penstock
