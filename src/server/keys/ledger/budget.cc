#include "server/keys/ledger/budget.h"

namespace penstock {

std::vector<BudgetState> budget_states(const Budget& budget, const Usage::Spent& spent,
                                       int64_t now) {
  constexpr int64_t kSecondsOfDay = 86400;
  std::vector<BudgetState> states;
  const int64_t today = day_of(now);
  Budget::visit(budget, [&](std::string_view name, double limit) {
    if (limit <= 0) return;
    const bool day = name.ends_with("day");
    const UseCounts& use = day ? spent.today : spent.month;
    const int64_t next = day ? today + 1 : first_day_of_next_month(today);
    states.push_back(
        {.name = std::string(name),
         .limit = limit,
         .used = name.starts_with("cost") ? use.cost() : static_cast<double>(use.tokens()),
         .resets_at = next * kSecondsOfDay});
  });
  return states;
}

std::optional<BudgetState> short_budget(const Budget& budget, const Usage::Spent& spent,
                                        const UseCounts& reserved, const UseCounts& wanted,
                                        int64_t now) {
  std::optional<BudgetState> worst;
  for (BudgetState& one : budget_states(budget, spent, now)) {
    const bool cost = one.name.starts_with("cost");
    one.reserved = cost ? reserved.cost() : static_cast<double>(reserved.tokens());
    one.wanted = cost ? wanted.cost() : static_cast<double>(wanted.tokens());
    const bool fits = one.used + one.reserved + one.wanted <= one.limit;
    if (!fits && (!worst || one.resets_at > worst->resets_at)) worst = std::move(one);
  }
  return worst;
}

std::optional<BudgetState> spent_budget(const Budget& budget, const Usage::Spent& spent,
                                        int64_t now) {
  std::optional<BudgetState> worst;
  for (BudgetState& one : budget_states(budget, spent, now)) {
    if (one.used >= one.limit && (!worst || one.resets_at > worst->resets_at))
      worst = std::move(one);
  }
  return worst;
}

}  // namespace penstock
