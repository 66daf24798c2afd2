// What an exchange may use, agreed with whoever pays for it before anything is computed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "server/http/exchange.h"
#include "server/keys/ledger/token_price.h"

namespace penstock {

// The most that one call may use: its prompts, and replies of max_tokens each.
struct SpendingClaim {
  TokenPrice price;
  int64_t prompt_tokens = 0, n_replies = 0, max_tokens = 0;
  // max_tokens is nobody's wish: it may be lowered to what there is
  bool may_be_shorter = false;

  int64_t tokens() const { return prompt_tokens + n_replies * max_tokens; }
};

// One exchange's, on its executor. What it holds for the exchange is given back when it is
// destroyed.
class Spending {
 public:
  virtual ~Spending() = default;
  // Holds room for the claim, whose max_tokens it may lower where that is allowed. Or why there is
  // none.
  struct Refusal {
    HttpRefusal reply;
    // not even with nothing else under way: until the budget is renewed
    bool for_good;
  };
  virtual std::optional<Refusal> claim(SpendingClaim& claim) = 0;
  // Tokens that were computed.
  virtual void charge(int prompt_tokens, int completion_tokens) = 0;
  // All that was claimed is computed: what was not needed is given back now.
  virtual void settle() = 0;
  // For another exchange in the place of this one.
  virtual std::shared_ptr<Spending> renewed() const = 0;
};

}  // namespace penstock
