#include "server/keys/key_spending.h"

#include <algorithm>

#include "server/keys/access.h"

namespace penstock {
namespace {

// Returns the maximum cost, whichever prompt tokens are cached.
UseCounts most_of(const TokenPrice& price, int64_t prompt_tokens, int64_t completion_tokens) {
  UseCounts use{.input_tokens = prompt_tokens, .output_tokens = completion_tokens};
  TokenPrice highest = price;
  highest.input = std::max(price.input, price.cached_input);
  highest.cached_input = -1;
  use.nano_cost = nano_cost_of(highest, use);
  return use;
}

class KeySpending final : public Spending {
 public:
  KeySpending(std::shared_ptr<ApiKey> key, Usage& usage, bool with_quota)
      : key_(std::move(key)), usage_(usage), with_quota_(with_quota) {}
  ~KeySpending() override {
    usage_.release(key_->payer(), held_);
    usage_.unsettle(key_->payer(), settled_);
    give_back_quota(quota_held_);
  }
  KeySpending(const KeySpending&) = delete;
  KeySpending& operator=(const KeySpending&) = delete;

  std::optional<Refusal> claim(SpendingClaim& claim) override {
    price_.input = std::max(price_.input, claim.price.input);
    price_.output = std::max(price_.output, claim.price.output);
    price_.cached_input = std::max(price_.cached_input, claim.price.cached_input);
    const UseCounts before = held_;
    if (auto refused = claim_budget(claim)) return refused;
    if (!with_quota_) return std::nullopt;
    auto refused = claim_quota(claim);
    if (refused) {  // the exchange may claim again
      UseCounts unneeded = held_;
      unneeded -= before;
      usage_.release(key_->payer(), unneeded);
      held_ = before;
    }
    return refused;
  }

  void charge(int prompt_tokens, int completion_tokens) override {
    charged_.input_tokens += prompt_tokens;
    charged_.output_tokens += completion_tokens;
    if (!with_quota_) return;
    const int n = prompt_tokens + completion_tokens;
    const double from_held = std::min<double>(n, quota_held_);
    quota_held_ -= from_held;
    if (from_held < n) key_->charge_tokens(n - from_held, std::chrono::steady_clock::now());
  }

  void settle() override {
    UseCounts used = most_of(price_, charged_.input_tokens, charged_.output_tokens);
    used -= settled_;
    used.input_tokens = std::clamp<int64_t>(used.input_tokens, 0, held_.input_tokens);
    used.output_tokens = std::clamp<int64_t>(used.output_tokens, 0, held_.output_tokens);
    used.nano_cost = std::clamp<int64_t>(used.nano_cost, 0, held_.nano_cost);
    usage_.settle(key_->payer(), used);
    settled_ += used;
    held_ -= used;
    usage_.release(key_->payer(), held_);
    held_ = {};
    give_back_quota(std::exchange(quota_held_, 0));
  }

  std::shared_ptr<Spending> renewed() const override {
    return spending_of(key_, usage_, with_quota_);
  }

 private:
  std::optional<Refusal> claim_budget(SpendingClaim& claim) {
    const Budget& budget = key_->record().budget;
    if (!budget.limited()) return std::nullopt;
    std::optional<BudgetState> short_of;
    UseCounts most;
    const auto fits = [&](const Usage::Spent& spent, const UseCounts& reserved) {
      if (claim.may_be_shorter) shorten(claim, budget, spent, reserved);
      most = most_of(claim.price, claim.prompt_tokens, claim.n_replies * claim.max_tokens);
      short_of = short_budget(budget, spent, reserved, most, usage_.now());
      return !short_of;
    };
    if (usage_.reserve(key_->payer(), fits, most)) {
      held_ += most;
      return std::nullopt;
    }
    return Refusal{no_room_in_budget(*short_of, usage_.now()),
                   short_of->used + short_of->wanted > short_of->limit};
  }

  // Shortens a claim to the longest reply that all limits allow, at least one token.
  static void shorten(SpendingClaim& claim, const Budget& budget, const Usage::Spent& spent,
                      const UseCounts& reserved) {
    const auto fits = [&](int64_t max_tokens) {
      const UseCounts most =
          most_of(claim.price, claim.prompt_tokens, claim.n_replies * max_tokens);
      return !short_budget(budget, spent, reserved, most, 0);
    };
    int64_t least = 1, most = std::max<int64_t>(claim.max_tokens, 1);
    if (fits(most)) return;
    while (least < most) {
      const int64_t middle = least + (most - least + 1) / 2;
      if (fits(middle))
        least = middle;
      else
        most = middle - 1;
    }
    claim.max_tokens = least;
  }

  std::optional<Refusal> claim_quota(const SpendingClaim& claim) {
    const auto refused =
        key_->hold_tokens(static_cast<double>(claim.tokens()), claim.may_be_shorter,
                          std::chrono::steady_clock::now(), quota_held_);
    if (!refused) return std::nullopt;
    return Refusal{over_quota(*key_, *refused), false};
  }

  void give_back_quota(double n) {
    if (n > 0) key_->charge_tokens(-n, std::chrono::steady_clock::now());
  }

  const std::shared_ptr<ApiKey> key_;
  Usage& usage_;
  const bool with_quota_;
  TokenPrice price_;       // highest price among the claims
  UseCounts held_;         // reserved in the budgets
  UseCounts settled_;      // used of what was reserved, by calls that have ended
  UseCounts charged_;      // used by all calls
  double quota_held_ = 0;  // tokens reserved in the quota
};

}  // namespace

std::shared_ptr<Spending> spending_of(std::shared_ptr<ApiKey> key, Usage& usage, bool with_quota) {
  return std::make_shared<KeySpending>(std::move(key), usage, with_quota);
}

}  // namespace penstock
