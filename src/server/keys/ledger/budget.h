// Budgets of an API key: tokens and cost per day and per month, besides its quotas per minute.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "server/keys/ledger/usage.h"

namespace penstock {

// The limits of a key; 0: no limit.
struct Budget {
  double tokens_per_day = 0, tokens_per_month = 0;
  double cost_per_day = 0, cost_per_month = 0;

  bool limited() const {
    return tokens_per_day > 0 || tokens_per_month > 0 || cost_per_day > 0 || cost_per_month > 0;
  }
  // Calls f(name, value) for each limit.
  template <class Self, class F>
  static void visit(Self& self, F&& f) {
    f("tokens_per_day", self.tokens_per_day);
    f("tokens_per_month", self.tokens_per_month);
    f("cost_per_day", self.cost_per_day);
    f("cost_per_month", self.cost_per_month);
  }
};

// One limit of a budget with its current use.
struct BudgetState {
  std::string name;  // "tokens_per_day"
  double limit = 0, used = 0;
  // by running requests; by the request that is to be admitted
  double reserved = 0, wanted = 0;
  int64_t resets_at = 0;  // unix time in seconds
};
// Returns the states of the limits that are set.
std::vector<BudgetState> budget_states(const Budget& budget, const Usage::Spent& spent,
                                       int64_t now);
// Returns the limit that used + reserved + wanted exceeds (of several, the one that resets last),
// or nullopt.
std::optional<BudgetState> short_budget(const Budget& budget, const Usage::Spent& spent,
                                        const UseCounts& reserved, const UseCounts& wanted,
                                        int64_t now);
// Returns the limit that is used up (of several, the one that resets last), or nullopt.
std::optional<BudgetState> spent_budget(const Budget& budget, const Usage::Spent& spent,
                                        int64_t now);

}  // namespace penstock
