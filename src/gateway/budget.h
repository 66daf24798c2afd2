// How much an API key may use in a day and in a month, beside its quotas per minute.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gateway/usage.h"

namespace penstock {

// 0: no limit.
struct Budget {
  double tokens_per_day = 0, tokens_per_month = 0;
  double cost_per_day = 0, cost_per_month = 0;

  bool limited() const {
    return tokens_per_day > 0 || tokens_per_month > 0 || cost_per_day > 0 || cost_per_month > 0;
  }
  // f(name, value) of each.
  template <class Self, class F>
  static void visit(Self& self, F&& f) {
    f("tokens_per_day", self.tokens_per_day);
    f("tokens_per_month", self.tokens_per_month);
    f("cost_per_day", self.cost_per_day);
    f("cost_per_month", self.cost_per_month);
  }
};

// One limit of a budget as it stands.
struct BudgetState {
  std::string name;  // "tokens_per_day"
  double limit = 0, used = 0;
  double reserved = 0, wanted = 0;  // by requests under way; by one that is to begin
  int64_t resets_at = 0;            // unix time
};
// Of those that are limited.
std::vector<BudgetState> budget_states(const Budget& budget, const Usage::Spent& spent, int64_t now);
// The one that has no room for `wanted` beside what was used and is reserved, and stays so for longest.
std::optional<BudgetState> short_budget(const Budget& budget, const Usage::Spent& spent,
                                        const UseCounts& reserved, const UseCounts& wanted, int64_t now);
// The one that is spent and stays so for longest.
std::optional<BudgetState> spent_budget(const Budget& budget, const Usage::Spent& spent, int64_t now);

}  // namespace penstock
